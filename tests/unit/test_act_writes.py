"""The write protocol's three writers, against an API server's preconditions in memory."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from evictune.act.definition import DefinitionCheck, specimen
from evictune.act.events import EventRecorder, event_name, render_event
from evictune.act.executor import Executor
from evictune.act.knobs import (
    ForeignManagerError,
    KnobStore,
    StaleObjectError,
    StoredKnobs,
    parse_document,
    render_document,
)
from evictune.act.status import StatusPrunedError, StatusWriter, dropped_fields, merge_patch
from evictune.api.decision import Applied, Decision, DecisionRecord, Memory, WriteKnobs
from evictune.api.knobs import STOCK_LRU, KnobDocument, KnobValues
from evictune.api.memory import memory_from_status
from evictune.api.parse import parse_policy
from evictune.api.policy import DNS_SUBDOMAIN, EvictionPolicy
from evictune.api.reasons import Reason
from evictune.api.status_schema import status_schema
from evictune.kube import ApiError

from tests.support.fake_api import FakeApi, merge

NOW = 1_796_000_000.0
POLICY = "/apis/evictune.io/v1alpha1/namespaces/ns/evictionpolicies/chat"
CONFIG_MAP = "/api/v1/namespaces/ns/configmaps/evictune-knobs-deployment-chat-8b"
EVENTS = "/api/v1/namespaces/ns/events"
T_LRU = KnobValues(512, 60)


def policy_body() -> dict[str, Any]:
    return {
        "metadata": {"namespace": "ns", "name": "chat", "uid": "u-1", "generation": 1},
        "spec": {
            "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "chat-8b"},
            "slo": {"ttft": {"quantile": "0.99", "threshold": "800ms"}},
        },
    }


@pytest.fixture
def api() -> FakeApi:
    fake = FakeApi()
    fake.put(POLICY, policy_body())
    return fake


def stored(api: FakeApi) -> tuple[dict[str, Any], EvictionPolicy]:
    body = api.get_or_none(POLICY)
    assert body is not None
    return body, parse_policy(body)


def record(reason: Reason = Reason.INTENDED, time: float = NOW) -> DecisionRecord:
    return DecisionRecord("d-1", time, reason, "xi shall be 512", STOCK_LRU, T_LRU)


# The knob document.


def test_a_document_is_read_as_it_was_written(api: FakeApi) -> None:
    store, (_, policy) = KnobStore(api), stored(api)
    store.write(policy, WriteKnobs(7, T_LRU, 60.0), store.read(policy), NOW)
    found = store.read(policy)
    assert found.document == KnobDocument(7, T_LRU, NOW + 60)
    assert found.foreign_manager == ""


def test_stock_lru_names_no_values(api: FakeApi) -> None:
    text = render_document(WriteKnobs(8, STOCK_LRU, 60.0), NOW)
    assert json.loads(text)["default"] == {"policy": "lru"}
    assert parse_document(text) == KnobDocument(8, STOCK_LRU, NOW + 60)


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "{",
        "[]",
        '{"schema": "other"}',
        '{"schema": "evictune.io/knobs/v1"}',
        '{"schema": "evictune.io/knobs/v1", "revision": 1e999, "expires": "2026-11-29T12:00:00Z",'
        ' "default": {"policy": "lru"}}',
        "[" * 100_000,
        '{"schema": "evictune.io/knobs/v1", "revision": 1, "expires": "soon", "default": {}}',
    ],
)
def test_what_is_no_document_is_none(text: str | None) -> None:
    assert parse_document(text) is None


def test_the_config_map_goes_with_its_policy(api: FakeApi) -> None:
    store, (_, policy) = KnobStore(api), stored(api)
    store.write(policy, WriteKnobs(1, T_LRU, 60.0), store.read(policy), NOW)
    metadata = api.objects[CONFIG_MAP]["metadata"]
    (owner,) = metadata["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("EvictionPolicy", "chat", "u-1")
    assert owner["controller"] is False
    assert owner["blockOwnerDeletion"] is False
    assert metadata["labels"] == {"app.kubernetes.io/managed-by": "evictune"}


def test_a_policy_of_the_same_name_does_not_own_what_the_one_before_left(api: FakeApi) -> None:
    store, (_, policy) = KnobStore(api), stored(api)
    store.write(policy, WriteKnobs(7, T_LRU, 60.0), store.read(policy), NOW)
    again = replace(policy, uid="another")
    left = store.read(again).document
    assert left == KnobDocument(7, T_LRU, NOW + 60, owned=False)
    store.write(again, WriteKnobs(7, T_LRU, 60.0), store.read(again), NOW)
    assert store.read(again).document == KnobDocument(7, T_LRU, NOW + 60)


def test_a_request_that_was_delayed_does_not_undo_a_later_one(api: FakeApi) -> None:
    store, (_, policy) = KnobStore(api), stored(api)
    store.write(policy, WriteKnobs(1, T_LRU, 60.0), store.read(policy), NOW)
    before = store.read(policy)
    store.write(policy, WriteKnobs(2, T_LRU, 60.0), before, NOW)
    with pytest.raises(StaleObjectError):
        store.write(policy, WriteKnobs(1, T_LRU, 60.0), before, NOW)
    after = store.read(policy).document
    assert after is not None
    assert after.revision == 2


def test_another_manager_is_named_before_and_after(api: FakeApi) -> None:
    store, (_, policy) = KnobStore(api), stored(api)
    fields = {"f:data": {"f:knobs.json": {}}}
    managed = [{"manager": "kubectl-edit", "operation": "Update", "fieldsV1": fields}]
    api.put(CONFIG_MAP, {"metadata": {"managedFields": managed}, "data": {"knobs.json": "{}"}})
    assert store.read(policy).foreign_manager == "kubectl-edit"
    cause = {"reason": "FieldManagerConflict", "message": 'conflict with "kubectl-edit" using v1'}
    api.fault = lambda method, path: ApiError(409, "Conflict", "Apply failed", (cause,))
    with pytest.raises(ForeignManagerError, match="kubectl-edit"):
        store.write(policy, WriteKnobs(1, T_LRU, 60.0), StoredKnobs(), NOW)


def test_labels_of_another_manager_are_no_conflict(api: FakeApi) -> None:
    store, (_, policy) = KnobStore(api), stored(api)
    managed = [{"manager": "argocd", "fieldsV1": {"f:metadata": {"f:labels": {"f:a": {}}}}}]
    api.put(CONFIG_MAP, {"metadata": {"managedFields": managed}, "data": {}})
    assert store.read(policy).foreign_manager == ""


# Status.


def test_status_is_written_whole_and_only_when_something_changed(api: FakeApi) -> None:
    writer = StatusWriter(api)
    body, _ = stored(api)
    wanted = {"regime": {"name": "Idle", "since": "x"}, "lastChangeTime": "a"}
    assert writer.write(body, wanted) is True
    body, policy = stored(api)
    assert policy.status == wanted
    assert writer.write(body, wanted | {"lastChangeTime": "b"}) is False
    assert writer.write(body, {"regime": {"name": "Idle", "since": "x"}, "pending": {}}) is True
    assert stored(api)[1].status == {"regime": {"name": "Idle", "since": "x"}, "pending": {}}


def test_a_status_decided_from_an_old_copy_is_not_written(api: FakeApi) -> None:
    body, _ = stored(api)
    api.put(POLICY, body)  # an edit in between
    with pytest.raises(StaleObjectError):
        StatusWriter(api).write(body, {"regime": {"name": "Idle"}})
    assert stored(api)[1].status == {}


def test_memory_that_was_not_kept_is_named(api: FakeApi) -> None:
    body, _ = stored(api)
    keep = api.request

    def prune(method: str, path: str, **rest: Any) -> dict[str, Any]:
        answer = keep(method, path, **rest)
        answer["status"].pop("pending")
        return answer

    api.request = prune  # type: ignore[method-assign]
    with pytest.raises(StatusPrunedError, match=r"status\.pending.*evictune crd"):
        StatusWriter(api).write(body, {"pending": {"revision": 1}, "observedGeneration": 1})


def test_however_many_fields_are_missing_the_remedy_is_told() -> None:
    everything = dropped_fields(specimen(status_schema())["observed"], {})
    told = str(StatusPrunedError(everything))
    assert f"and {len(everything) - 8} more" in told
    assert told.endswith("run `evictune crd | kubectl apply -f -`")
    assert len(told) < 1024


@pytest.mark.parametrize("kept", [None, [], [{"reason": "Kept"}]])
def test_items_and_their_fields_that_were_not_kept_are_named(kept: Any) -> None:
    lost = dropped_fields({"decisions": [{"reason": "Kept", "time": "t"}]}, {"decisions": kept})
    assert lost == ("status.decisions[0].time" if kept else "status.decisions[0]",)


def test_what_a_newer_operator_remembers_is_left_as_it_is(api: FakeApi) -> None:
    body, _ = stored(api)
    newer = {"restarts": [{"pod": "a"}], "pending": {"revision": 1}}
    body = api.put(POLICY, body | {"status": newer})
    StatusWriter(api).write(body, {"observedGeneration": 2})  # type: ignore[arg-type]
    assert stored(api)[1].status == {"restarts": [{"pod": "a"}], "observedGeneration": 2}


# The definition in the cluster.


def test_every_field_of_memory_is_asked_for() -> None:
    sample = specimen(status_schema())
    assert set(sample) == set(status_schema()["properties"])
    memory = memory_from_status(sample)
    assert memory.applied is not None
    assert memory.pending is not None
    assert memory.pending.baseline.fingerprint
    assert "fingerprint" in sample["quarantine"][0]
    assert "decisionID" in sample["decisions"][0]


def older_definition(api: FakeApi) -> list[str]:
    """Every answer lacks the quarantine; the dry runs asked for."""
    keep, asked = api.request, []

    def prune(method: str, path: str, **rest: Any) -> dict[str, Any]:
        answer = keep(method, path, **rest)
        if rest.get("query"):
            asked.append(path)
            answer["status"].pop("quarantine")
        return answer

    api.request = prune  # type: ignore[method-assign]
    return asked


def test_an_older_definition_is_named_before_anything_is_written(api: FakeApi) -> None:
    body, policy = stored(api)
    asked = older_definition(api)
    executor = Executor(api)  # type: ignore[arg-type]
    for _ in range(2):
        with pytest.raises(StatusPrunedError, match=r"status\.quarantine"):
            executor.check_definition(body, policy, NOW)
    assert asked == [f"{POLICY}/status"] * 2
    assert api.objects[POLICY] == body
    events = [found for path, found in api.objects.items() if path.startswith(EVENTS)]
    assert [each["reason"] for each in events] == ["DefinitionOutdated"]
    assert events[0]["type"] == "Warning"


def test_what_a_policy_does_not_use_may_be_missing(api: FakeApi) -> None:
    body, _ = stored(api)
    keep = api.request

    def prune(method: str, path: str, **rest: Any) -> dict[str, Any]:
        """As a definition of before the memory fraction does."""
        answer = keep(method, path, **rest)
        if rest.get("query"):
            status = answer["status"]
            for field in ("shortage", "trial", "holds", "disruptions"):
                status.pop(field)
            status["pending"].pop("pods")
            for values in (status["applied"]["values"], status["decisions"][0]["from"]):
                values.pop("gpuMemoryUtilization")
        return answer

    api.request = prune  # type: ignore[method-assign]
    check = DefinitionCheck(api)  # type: ignore[arg-type]
    check.check(body)
    bounds = {"gpuMemoryUtilization": {"min": "0.80", "max": "0.90"}}
    with_knob = body | {"spec": body["spec"] | {"knobs": bounds}}
    begun = body | {"status": {"trial": {"decisionID": "d"}}}
    for each in (with_knob, begun):
        with pytest.raises(StatusPrunedError, match=r"status\.applied\.values\.gpuMemory"):
            check.check(each)
    check.check(body)


def test_a_good_definition_is_asked_for_once_a_minute(api: FakeApi) -> None:
    body, _ = stored(api)
    now, asked = [0.0], []
    keep = api.request

    def count(method: str, path: str, **rest: Any) -> dict[str, Any]:
        asked.append(now[0])
        return keep(method, path, **rest)

    api.request = count  # type: ignore[method-assign]
    check = DefinitionCheck(api, lambda: now[0])  # type: ignore[arg-type]
    for second in range(0, 130, 10):
        now[0] = float(second)
        check.check(body)
    assert asked == [0.0, 60.0, 120.0]


def tree(random: Random, depth: int = 3) -> dict[str, Any]:
    """A small random object."""
    leaves: list[Any] = [1, 2, "x", [], [1], {}]
    return {
        key: tree(random, depth - 1) if depth and random.random() < 0.5 else random.choice(leaves)
        for key in "abcd"
        if random.random() < 0.6
    }


@pytest.mark.parametrize("seed", range(200))
def test_a_merge_patch_turns_one_into_the_other(seed: int) -> None:
    random = Random(seed)
    old, new = tree(random), tree(random)
    assert merge(old, merge_patch(old, new)) == new


# Events.


def test_an_event_is_created_once(api: FakeApi) -> None:
    recorder, (_, policy) = EventRecorder(api), stored(api)
    assert recorder.emit(policy, record()) is True
    assert recorder.emit(policy, record()) is True
    assert len([path for path in api.objects if path.startswith(EVENTS)]) == 1


def test_names_tell_transitions_apart_and_survive_reading_back() -> None:
    policy = parse_policy(policy_body())
    names = {event_name(policy, record(reason)) for reason in Reason}
    assert len(names) == len(Reason)
    nameless = [DecisionRecord("", time, Reason.RECOMMENDED, "") for time in (NOW - 0.4, NOW)]
    assert event_name(policy, nameless[0]) == event_name(policy, nameless[1])


def test_a_name_that_is_long_leaves_room() -> None:
    body = policy_body()
    body["metadata"]["name"] = "a" * 253
    assert len(event_name(parse_policy(body), record())) <= 253
    body["metadata"]["name"] = "a" * 199 + "-b"
    assert re.fullmatch(DNS_SUBDOMAIN, event_name(parse_policy(body), record()))


def test_what_went_wrong_is_a_warning() -> None:
    policy = parse_policy(policy_body())
    assert render_event(policy, record(Reason.REVERTED))["type"] == "Warning"
    assert render_event(policy, record(Reason.KEPT))["type"] == "Normal"


@pytest.mark.parametrize(
    "gone",
    [
        ApiError(404, "NotFound", 'namespaces "ns" not found'),
        ApiError(403, "Forbidden", "ns goes", ({"reason": "NamespaceTerminating"},)),
    ],
)
def test_where_the_namespace_goes_nobody_is_told(
    api: FakeApi, caplog: pytest.LogCaptureFixture, gone: ApiError
) -> None:
    _, policy = stored(api)
    api.fault = lambda method, path: gone
    assert EventRecorder(api).emit(policy, record()) is True
    assert caplog.text == ""


def test_an_event_that_is_refused_does_not_stop_the_change(api: FakeApi) -> None:
    api.fault = lambda method, path: (
        ApiError(403, "Forbidden", "no") if path.startswith(EVENTS) else None
    )
    _, policy = stored(api)
    decision = Decision(Memory(), (), (WriteKnobs(1, T_LRU, 60.0),), (record(),))
    executor = Executor(api)
    executor.carry_out(policy, decision, executor.knobs.read(policy), NOW)
    assert CONFIG_MAP in api.objects


def test_a_document_that_is_refused_is_told_once_and_ends_the_tick(api: FakeApi) -> None:
    api.fault = lambda method, path: (
        ApiError(403, "Forbidden", "may not patch configmaps")
        if method == "PATCH" and path == CONFIG_MAP
        else None
    )
    executor = Executor(api)
    pending = Applied(1, "d-1", T_LRU)
    decision = Decision(Memory(applied=pending), (), (WriteKnobs(1, T_LRU, 60.0),), (record(),))
    for _ in range(2):
        _, policy = stored(api)
        with pytest.raises(ApiError, match="may not patch"):
            executor.carry_out(policy, decision, executor.knobs.read(policy), NOW)
    told = [body for path, body in api.objects.items() if path.startswith(EVENTS)]
    assert sorted((each["type"], each["reason"]) for each in told) == [
        ("Normal", "Intended"),
        ("Warning", "WriteRefused"),
    ]


def test_events_are_emitted_though_the_document_is_stale(api: FakeApi) -> None:
    _, policy = stored(api)
    executor = Executor(api)
    executor.knobs.write(policy, WriteKnobs(1, T_LRU, 60.0), StoredKnobs(), NOW)
    before = StoredKnobs(resource_version="0")
    decision = Decision(Memory(), (), (WriteKnobs(2, T_LRU, 60.0),), (record(),))
    with pytest.raises(StaleObjectError):
        executor.carry_out(policy, decision, before, NOW)
    assert [b["reason"] for _, path, b in api.requests if path == EVENTS] == ["Intended"]


def test_only_recent_transitions_are_told_again(api: FakeApi) -> None:
    _, policy = stored(api)
    records = [record(time=NOW - 7200), record(Reason.KEPT, NOW - 60)]
    Executor(api).tell_again(policy, records, NOW)
    told = [body["reason"] for _, path, body in api.requests if path == EVENTS]
    assert told == ["Kept"]
