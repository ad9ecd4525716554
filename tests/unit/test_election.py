"""The Lease's lock: whose turn it is, by a clock that nobody sets, and how it is given up."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import urllib3
from evictune.election import (
    LEASE_DURATION,
    RENEW_DEADLINE,
    RETRY_PERIOD,
    Election,
    LeaseCalls,
    LeaseLostError,
    TimedLeaseLock,
    own_identity,
)
from evictune.kube import ApiError, KubeApi
from evictune.logs import set_up_logging
from kubernetes import client
from kubernetes.client.rest import ApiException
from kubernetes.leaderelection import leaderelection
from kubernetes.leaderelection.electionconfig import Config

EPOCH = 1_796_000_000.0


class FakeLeases:
    """One Lease under the API server's precondition. `fault`: what the next calls raise."""

    def __init__(self) -> None:
        self.lease: Any = None
        self.fault: ApiException | None = None
        self.after_write: ApiException | None = None

    def read_namespaced_lease(self, name: str, namespace: str) -> Any:
        self._fail()
        if self.lease is None:
            raise refusal(404, '{"code": 404}')
        return self.lease.model_copy(deep=True)

    def create_namespaced_lease(self, namespace: str, body: Any) -> Any:
        self._fail()
        return self._store(body)

    def replace_namespaced_lease(self, name: str, namespace: str, body: Any) -> Any:
        self._fail()
        if body.metadata.resource_version != self.lease.metadata.resource_version:
            raise refusal(409, "{}")
        return self._store(body)

    def _store(self, body: Any) -> Any:
        old = self.lease.metadata.resource_version if self.lease else 0
        version = str(int(old) + 1)
        metadata = client.V1ObjectMeta(name="evictune", resource_version=version)
        self.lease = client.V1Lease(metadata=metadata, spec=body.spec.model_copy(deep=True))
        if self.after_write:
            raise self.after_write
        return self.lease

    def _fail(self) -> None:
        if self.fault is not None:
            raise self.fault

    @property
    def holder(self) -> str:
        return str(self.lease.spec.holder_identity)


def refusal(status: int, body: str) -> ApiException:
    error = ApiException(status=status, reason="refused")
    error.body = body
    return error


class Hall:
    """Candidates for one Lease, with their wall clock and the true time in hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.leases = FakeLeases()
        self.now = 1000.0
        self.set_by = 0.0
        wall = SimpleNamespace(time=lambda: EPOCH + self.now + self.set_by, sleep=lambda _: None)
        monkeypatch.setattr(leaderelection, "time", wall)

    def candidate(self, name: str) -> Candidate:
        return Candidate(self, name)


class Candidate:
    """One attempt after another of the library's election, on the lock under test."""

    def __init__(self, hall: Hall, name: str) -> None:
        calls: Any = hall.leases
        self.lock = TimedLeaseLock("ns", "evictune", name, calls, clock=lambda: hall.now)
        deadlines = (LEASE_DURATION, RENEW_DEADLINE, RETRY_PERIOD)
        config = Config(self.lock, *deadlines, lambda: None, lambda: None)
        self._election = leaderelection.LeaderElection(config)

    def attempt(self) -> bool:
        return bool(self._election.try_acquire_or_renew())


@pytest.fixture
def hall(monkeypatch: pytest.MonkeyPatch) -> Hall:
    return Hall(monkeypatch)


def test_the_first_gets_it_and_the_second_waits_until_it_runs_out(hall: Hall) -> None:
    first, second = hall.candidate("a"), hall.candidate("b")
    assert first.attempt()
    assert not second.attempt()
    hall.now += LEASE_DURATION - 1
    assert not second.attempt()
    hall.now += 1
    assert second.attempt()
    assert hall.leases.holder == "b"


def test_a_renewal_starts_the_wait_anew(hall: Hall) -> None:
    first, second = hall.candidate("a"), hall.candidate("b")
    first.attempt()
    for _ in range(10):
        hall.now += LEASE_DURATION - 1
        assert not second.attempt()
        assert first.attempt()
        assert not second.attempt()


def test_what_a_killed_container_held_its_successor_of_the_same_name_takes_at_once(
    hall: Hall,
) -> None:
    assert hall.candidate("pod-a").attempt()
    assert hall.candidate("pod-a").attempt()


@pytest.mark.parametrize("seconds", [3600.0, -3600.0])
def test_a_clock_that_is_set_takes_no_lease_that_is_held_and_waits_no_longer(
    hall: Hall, seconds: float
) -> None:
    first, second = hall.candidate("a"), hall.candidate("b")
    first.attempt()
    assert not second.attempt()
    hall.set_by = seconds
    assert not second.attempt()
    assert hall.leases.holder == "a"
    hall.now += LEASE_DURATION
    assert second.attempt()


@pytest.mark.parametrize("seconds", [3600.0, -3600.0])
def test_a_leader_whose_clock_is_set_goes_on(hall: Hall, seconds: float) -> None:
    first = hall.candidate("a")
    first.attempt()
    hall.set_by = seconds
    assert first.lock.fresh()
    assert first.attempt()


def test_a_leader_that_cannot_renew_stops_writing_before_others_take_over(hall: Hall) -> None:
    first, second = hall.candidate("a"), hall.candidate("b")
    first.attempt()
    second.attempt()
    hall.leases.fault = refusal(0, "")
    hall.now += RENEW_DEADLINE
    assert not first.attempt()
    assert not first.lock.fresh()
    hall.leases.fault = None
    assert not second.attempt()
    # Nobody could take it meanwhile: it is still the first one's.
    assert first.attempt()
    assert first.lock.fresh()


def test_time_is_counted_from_before_the_renewal_was_sent(hall: Hall) -> None:
    first = hall.candidate("a")
    first.attempt()
    hall.now += 1

    def slow(name: str, namespace: str, body: Any) -> Any:
        hall.now += RENEW_DEADLINE
        return body

    hall.leases.replace_namespaced_lease = slow  # type: ignore[method-assign]
    assert first.attempt()
    assert not first.lock.fresh()


def test_whoever_was_superseded_does_not_wait_to_lead_again(hall: Hall) -> None:
    first, second = hall.candidate("a"), hall.candidate("b")
    first.attempt()
    second.attempt()
    hall.now += LEASE_DURATION
    assert second.attempt()
    with pytest.raises(LeaseLostError, match="ns/evictune is now held by b"):
        first.attempt()


def test_a_lease_given_up_is_taken_at_once(hall: Hall) -> None:
    first, second = hall.candidate("a"), hall.candidate("b")
    first.attempt()
    assert not second.attempt()
    first.lock.give_up()
    assert not first.lock.fresh()
    assert hall.leases.holder == ""
    assert second.attempt()
    first.lock.give_up()
    assert hall.leases.holder == "b"


def test_a_follower_gives_up_nothing(hall: Hall) -> None:
    first, second = hall.candidate("a"), hall.candidate("b")
    first.attempt()
    second.attempt()
    second.lock.give_up()
    assert hall.leases.holder == "a"


def test_a_lease_that_cannot_be_given_up_is_told(
    hall: Hall, caplog: pytest.LogCaptureFixture
) -> None:
    first = hall.candidate("a")
    first.attempt()
    hall.leases.after_write = refusal(500, "")
    first.lock.give_up()
    assert "could not be given up" in caplog.text


def test_a_write_whose_answer_was_lost_counts_at_the_next_attempt(hall: Hall) -> None:
    first = hall.candidate("a")
    hall.leases.after_write = refusal(0, "")
    assert not first.attempt()
    assert not first.lock.fresh()
    hall.leases.after_write = None
    assert first.attempt()
    assert first.lock.fresh()


def test_a_lease_that_was_deleted_is_made_anew(hall: Hall) -> None:
    first = hall.candidate("a")
    first.attempt()
    hall.leases.lease = None
    assert first.attempt()
    assert hall.leases.holder == "a"


def test_the_log_names_a_holder_once(hall: Hall, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "evictune")
    first, second = hall.candidate("a"), hall.candidate("b")
    for _ in range(5):
        hall.now += RETRY_PERIOD
        first.attempt()
        second.attempt()
    told = [each.message for each in caplog.records if each.name.startswith("evictune")]
    assert told == ["a holds the Lease ns/evictune: waiting as b"]


def test_an_election_that_fails_in_itself_ends_the_leadership(
    hall: Hall, caplog: pytest.LogCaptureFixture
) -> None:
    candidate = hall.candidate("a")

    def broken(name: str, namespace: str) -> Any:
        raise RuntimeError("a mistake of ours")

    hall.leases.read_namespaced_lease = broken  # type: ignore[method-assign]

    async def stand() -> Election:
        found = Election(candidate.lock)
        found.start()
        await asyncio.wait_for(found.over.wait(), 10)
        return found

    found = asyncio.run(stand())
    assert isinstance(found.lost, LeaseLostError)
    assert "a mistake of ours" in caplog.text
    assert not found.leading()


def test_the_thread_ends_with_the_operator(hall: Hall) -> None:
    candidate = hall.candidate("a")

    async def stand() -> None:
        found = Election(candidate.lock)
        found.start()
        await asyncio.wait_for(found.won(), 10)
        assert found.leading()
        found.give_up()

    asyncio.run(stand())
    for thread in threading.enumerate():
        if thread.name == "leader election":
            thread.join(10)
            assert not thread.is_alive()
    assert hall.leases.holder == ""


def test_a_problem_is_told_once_and_again_after_it_was_gone(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[Exception | None] = []

    def read(self: object, name: str, namespace: str, **_: Any) -> None:
        error = answers.pop(0)
        if error is not None:
            raise error

    monkeypatch.setattr(client.CoordinationV1Api, "read_namespaced_lease", read)
    calls = LeaseCalls(client.Configuration())
    forbidden, away = refusal(403, "no"), urllib3.exceptions.HTTPError("refused")
    answers += [forbidden, forbidden, away, away, None, away, refusal(404, "")]
    for outcome in list(answers):
        if outcome is None:
            calls.read_namespaced_lease("evictune", "ns")
        else:
            # What is not the API server's answer has its form all the same.
            with pytest.raises(ApiException):
                calls.read_namespaced_lease("evictune", "ns")
    told = [each.message for each in caplog.records]
    assert len(told) == 3
    assert "(403)" in told[0]
    assert "API server: refused" in told[1]


def test_nothing_is_written_without_the_lease() -> None:
    api = KubeApi(client.Configuration(), may_write=lambda: False)
    for method in ("POST", "PATCH", "PUT", "DELETE"):
        with pytest.raises(ApiError, match="without a lease"):
            api.request(method, "/api/v1/namespaces")


def test_the_pod_is_the_holder_and_outside_a_pod_every_process_is_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("POD_NAME", "evictune-0")
    assert own_identity() == "evictune-0"
    monkeypatch.delenv("POD_NAME")
    assert own_identity() != own_identity()


@pytest.fixture
def _own_logging() -> Iterator[None]:
    """Puts the process's logging back: a handler left behind would write to a closed stream."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.usefixtures("_own_logging")
def test_the_library_is_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging("text")
    logging.getLogger("leaderelection").info("leader a has successfully acquired lease")
    assert capsys.readouterr().err == ""
