"""`evictune check`: what it takes for working, and what it says of what does not."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from evictune.api.crd import crd
from evictune.api.sources import OperatorConfiguration
from evictune.console.check import Account, Installation, NotYetError, run

from tests.support.fake_api import FakeApi
from tests.support.page_server import Answer, serve

SCHEMA = "/openapi/v3/apis/evictune.io/v1alpha1"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/ops/leases/evictune"
POD = "/api/v1/namespaces/ops/pods/evictune-0"

Json = dict[str, Any]


class Api(FakeApi):
    """Answers reviews of access by `may`."""

    may: Callable[[Json], bool] = staticmethod(lambda attributes: True)

    def request(self, method: str, path: str, *, body: Any, **_: Any) -> Json:  # type: ignore[override]
        """A SelfSubjectAccessReview."""
        assert (method, body["kind"]) == ("POST", "SelfSubjectAccessReview")
        attributes = body["spec"]["resourceAttributes"]
        self.requests.append((method, path, attributes))
        return {"status": {"allowed": self.may(attributes)}}


def published(schema: Json) -> Json:
    """The schema as the API server publishes it."""
    return {"components": {"schemas": {"io.evictune.v1alpha1.EvictionPolicy": schema}}}


def current() -> Json:
    (version,) = crd()["spec"]["versions"]
    return copy.deepcopy(version["schema"]["openAPIV3Schema"])


@pytest.fixture
def api() -> Api:
    return Api()


def installation(api: Api, **configuration: Any) -> Installation:
    made: Any = api
    return Installation(made, "ops", OperatorConfiguration(**configuration))


def test_the_definition_of_this_version_is_fine(api: Api) -> None:
    api.put(SCHEMA, published(current()))
    assert "every field" in installation(api).definition()


def test_a_definition_of_another_version_is_told_by_its_fields(api: Api) -> None:
    schema = current()
    del schema["properties"]["status"]["properties"]["quarantine"]
    del schema["properties"]["spec"]["properties"]["slo"]["properties"]["ttft"]["properties"][
        "window"
    ]
    api.put(SCHEMA, published(schema))
    with pytest.raises(NotYetError, match=r"without spec\.slo\.ttft\.window, status\.quarantine"):
        installation(api).definition()


def test_no_definition_is_told_with_the_remedy(api: Api) -> None:
    for body in (None, {"components": {}}):
        if body is not None:
            api.put(SCHEMA, body)
        with pytest.raises(NotYetError, match=r"evictune crd \| kubectl apply"):
            installation(api).definition()


def test_a_lease_must_be_renewed_while_we_look(api: Api) -> None:
    asked = installation(api)
    with pytest.raises(NotYetError, match="nobody holds ops/evictune"):
        asked.lease()
    spec = {"holderIdentity": "evictune-0", "renewTime": "2026-01-01T00:00:00.000000Z"}
    api.put(LEASE, {"spec": spec})
    for _ in range(2):
        with pytest.raises(NotYetError, match="does not renew it"):
            asked.lease()
    api.put(LEASE, {"spec": spec | {"renewTime": "2026-01-01T00:00:02.000000Z"}})
    assert asked.lease() == "evictune-0 holds ops/evictune and renews it"


def test_the_pod_that_leads_must_answer(api: Api) -> None:
    api.put(LEASE, {"spec": {"holderIdentity": "evictune-0"}})
    status = 200
    with serve(lambda asked: Answer(status=status)) as page:
        address = page.url.removeprefix("http://").rstrip("/")
        asked = installation(api, liveness_address=address)
        with pytest.raises(NotYetError, match="no pod of namespace ops has that name"):
            asked.operator()
        api.put(POD, {"status": {"podIP": "127.0.0.1"}})
        assert asked.operator() == f"evictune-0 answers http://{address}/healthz"
        status = 503
        with pytest.raises(NotYetError, match="/healthz answers 503"):
            asked.operator()
    with pytest.raises(NotYetError, match=r"does not answer .*from within the cluster"):
        asked.operator()


@pytest.mark.parametrize(("namespaces", "count"), [((), 17), (("a", "b"), 27)])
def test_every_right_is_asked_for(api: Api, namespaces: tuple[str, ...], count: int) -> None:
    asked: Any = Account(api, "ops", OperatorConfiguration(namespaces=namespaces))  # type: ignore[arg-type]
    assert (", ".join(namespaces) or "all namespaces") in asked.rights()
    assert len(api.requests) == count
    reviewed = [each for _, _, each in api.requests]
    assert {each["namespace"] for each in reviewed} == {"ops", *(namespaces or ("",))}
    # Named where the right is of one object, or a right to all would be asked for.
    assert [each["name"] for each in reviewed if each["resource"] == "leases"] == [
        "evictune",
        "evictune",
        "",
    ]
    api.may = lambda each: each["subresource"] != "status" and each["verb"] != "update"
    with pytest.raises(NotYetError) as caught:
        asked.rights()
    assert "may not patch evictionpolicies.evictune.io/status in" in str(caught.value)
    assert "nor update leases.coordination.k8s.io evictune in namespace ops" in str(caught.value)


class Clock:
    """Time that passes while one sleeps."""

    now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds


def test_a_check_is_repeated_until_it_is_well_or_time_is_up() -> None:
    clock, told = Clock(), []

    def late() -> str:
        if clock.now < 3:
            raise NotYetError("not yet")
        return "there"

    def never() -> str:
        raise NotYetError("never")

    def outcome(*checks: Callable[[], str]) -> bool:
        named = {check.__name__: check for check in checks}
        return run(named, 10, told.append, clock.sleep, clock)

    assert outcome(late)
    assert told == ["ok      late: there"]
    assert clock.now == 3
    # What comes after a check that failed is looked at once.
    assert not outcome(never, late)
    assert told[1:] == ["FAILED  never: never", "ok      late: there"]
    assert clock.now == 13
