"""One tick: fresh reads, what ends it early, and what it tells."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from evictune.api.decision import Decision, DecisionRecord, Memory, WriteKnobs
from evictune.api.knobs import KnobValues
from evictune.api.observation import Interval, Observation, TargetState, Unknown
from evictune.api.policy import EvictionPolicy, FleetMode
from evictune.api.reasons import Reason
from evictune.index import PolicyIndex, entry_of
from evictune.kube import ApiError
from evictune.operator_metrics import OperatorMetrics
from evictune.tick import INVALID_INTERVAL, RETRY_STALE, Outcome, Ticker, readings_of

from tests.support.fake_api import FakeApi
from tests.support.fake_clock import EPOCH

PATH = "/apis/evictune.io/v1alpha1/namespaces/ns/evictionpolicies/chat"
CONFIG_MAP = "/api/v1/namespaces/ns/configmaps/evictune-knobs-deployment-chat-8b"
KEY = ("ns", "chat")


def body(**spec: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "namespace": "ns",
            "name": "chat",
            "uid": "u-1",
            "generation": 3,
            "creationTimestamp": "2026-11-29T12:00:00Z",
        },
        "spec": {
            "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "chat-8b"},
            "slo": {"ttft": {"quantile": "0.99", "threshold": "800ms"}},
            **spec,
        },
    }


def missing_target() -> Observation:
    unknown = Unknown(Reason.TARGET_MISSING, "no such Deployment")
    state = TargetState(False, problem=Reason.TARGET_MISSING, message="no such Deployment")
    readings = [unknown] * 12
    return Observation(state, (), *readings)


class Scene:
    """A ticker before an API server in memory; observing runs `meanwhile`."""

    def __init__(self) -> None:
        self.api = FakeApi()
        self.index = PolicyIndex()
        self.metrics = OperatorMetrics()
        self.observed: list[EvictionPolicy] = []
        self.meanwhile: Callable[[], None] = lambda: None
        self._pool = ThreadPoolExecutor(1)
        self.ticker = Ticker(
            self.api,  # type: ignore[arg-type]
            self,
            self.index,
            self.metrics,
            self._pool,
            lambda: EPOCH,
        )

    async def observe(self, policy: EvictionPolicy) -> Observation:
        self.observed.append(policy)
        self.meanwhile()
        return missing_target()

    def tick(self) -> Outcome | None:
        return asyncio.run(self.ticker.tick(KEY))

    def status(self) -> dict[str, Any]:
        return dict(self.api.objects[PATH].get("status") or {})

    def shown(self, condition: str) -> dict[str, float]:
        """The condition's series: reason -> value."""
        samples = next(iter(self.metrics.condition.collect())).samples
        mine = [each for each in samples if each.labels["condition"] == condition]
        return {each.labels["reason"]: each.value for each in mine}

    def ready(self) -> tuple[str, str, str]:
        (ready,) = [each for each in self.status()["conditions"] if each["type"] == "Ready"]
        return ready["status"], ready["reason"], ready["message"]


@pytest.fixture
def scene() -> Scene:
    made = Scene()
    made.api.put(PATH, body())
    return made


def test_a_tick_follows_the_policy_as_it_is_now(scene: Scene) -> None:
    first = scene.tick()
    assert first is not None
    assert (first.interval, first.generation) == (30.0, 3)
    scene.api.put(PATH, body(behavior={"interval": "7s"}))
    second = scene.tick()
    assert second is not None
    assert second.interval == 7.0
    assert [each.spec.behavior.interval for each in scene.observed] == [30.0, 7.0]


def test_the_status_is_written_once_while_nothing_changes(scene: Scene) -> None:
    scene.tick()
    writes = len(scene.api.requests)
    scene.tick()
    assert [r for r in scene.api.requests[writes:] if r[1].endswith("/status")] == []


@pytest.mark.parametrize("leaving", [True, False])
def test_a_policy_that_is_gone_or_going_ends_its_loop(scene: Scene, leaving: bool) -> None:
    if leaving:
        scene.api.objects[PATH]["metadata"]["deletionTimestamp"] = "2026-11-29T12:00:00Z"
    else:
        del scene.api.objects[PATH]
    assert scene.tick() is None
    assert scene.api.requests == []


def test_an_edit_during_the_tick_is_decided_afresh(scene: Scene) -> None:
    scene.meanwhile = lambda: (scene.api.put(PATH, body(mode="Observe")), None)[1]
    outcome = scene.tick()
    assert outcome is not None
    assert outcome.next_check == RETRY_STALE
    assert scene.status() == {}
    scene.meanwhile = lambda: None
    scene.tick()
    assert scene.status()["observedGeneration"] == 3


def test_a_spec_that_cannot_be_used_is_named_in_the_status(scene: Scene) -> None:
    unusable = {"ttft": {"quantile": "1.5", "threshold": "800ms"}}
    scene.api.put(PATH, body(slo=unusable) | {"status": {"regime": {"name": "Idle"}}})
    outcome = scene.tick()
    assert outcome is not None
    assert outcome.interval == INVALID_INTERVAL
    status, reason, message = scene.ready()
    assert (status, reason) == ("False", "InvalidSpec")
    assert "spec.slo.ttft.quantile" in message
    assert scene.status()["regime"] == {"name": "Idle"}
    assert scene.observed == []


def test_the_older_policy_wins(scene: Scene) -> None:
    older = body()
    older["metadata"] |= {"name": "older", "creationTimestamp": "2026-11-29T11:00:00Z"}
    scene.index.put(entry_of(older))
    scene.index.put(entry_of(body()))
    scene.tick()
    status, reason, message = scene.ready()
    assert (status, reason) == ("False", "Conflict")
    assert "olicy older (of 2026-11-29T11:00:00Z)" in message


def test_a_document_that_somebody_else_changed_is_a_conflict(scene: Scene) -> None:
    managed = [{"manager": "kubectl-edit", "fieldsV1": {"f:data": {"f:knobs.json": {}}}}]
    scene.api.put(CONFIG_MAP, {"metadata": {"managedFields": managed}, "data": {}})
    scene.tick()
    assert scene.ready()[1] == "Conflict"
    assert "kubectl-edit" in scene.ready()[2]


def test_status_comes_first_then_the_document_then_events(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = DecisionRecord("d-1", EPOCH, Reason.INTENDED, "xi shall be 512")
    effects = (WriteKnobs(1, KnobValues(512, 60), 60.0),)
    made = Decision(Memory(decisions=(record,)), (), effects, (record,))
    monkeypatch.setattr("evictune.tick.decide", lambda *_: made)
    scene.tick()
    events = "/api/v1/namespaces/ns/events"
    assert [path for _, path, _ in scene.api.requests] == [f"{PATH}/status", CONFIG_MAP, events]


def test_nothing_follows_a_status_that_was_not_written(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = DecisionRecord("d-1", EPOCH, Reason.INTENDED, "xi shall be 512")
    effects = (WriteKnobs(1, KnobValues(512, 60), 60.0),)
    made = Decision(Memory(decisions=(record,)), (), effects, (record,))
    monkeypatch.setattr("evictune.tick.decide", lambda *_: made)
    scene.meanwhile = lambda: (scene.api.put(PATH, body(mode="Observe")), None)[1]
    scene.tick()
    assert [path for _, path, _ in scene.api.requests] == [f"{PATH}/status"]
    labels = {"namespace": "ns", "policy": "chat", "reason": "Intended"}
    assert scene.metrics.registry.get_sample_value("evictune_decisions_total", labels) is None


def test_an_api_server_that_is_away_makes_the_tick_fail(scene: Scene) -> None:
    scene.api.fault = lambda method, path: ApiError(0, "Unreachable", "API server: refused")
    with pytest.raises(ApiError):
        scene.tick()


def test_a_document_that_may_not_be_read_is_told_on_the_policy(scene: Scene) -> None:
    refusal = ApiError(403, "Forbidden", "configmaps is forbidden")
    scene.api.fault = lambda method, path: refusal if "/configmaps/" in path else None
    for _ in range(2):
        with pytest.raises(ApiError):
            scene.tick()
    assert scene.ready()[:2] == ("False", "ClusterUnavailable")
    assert "configmaps is forbidden" in scene.ready()[2]
    assert len([path for _, path, _ in scene.api.requests if path.endswith("/status")]) == 1
    scene.api.fault = lambda method, path: None
    scene.tick()
    assert scene.ready()[1] != "ClusterUnavailable"


def test_events_that_a_predecessor_may_have_lost_are_emitted_once(scene: Scene) -> None:
    decision = {
        "decisionID": "d-1",
        "time": "2026-11-29T11:59:00Z",
        "reason": "Kept",
        "message": "p99 fell",
    }
    scene.api.put(PATH, body() | {"status": {"decisions": [decision]}})
    scene.ticker._clock = lambda: 1_795_953_600.0  # 2026-11-29T12:00:00Z
    scene.tick()
    scene.tick()
    told = [b["reason"] for m, _, b in scene.api.requests if m == "POST" and b["reason"] == "Kept"]
    assert told == ["Kept"]


def test_events_of_a_write_whose_answer_was_lost_are_emitted_at_the_next_tick(scene: Scene) -> None:
    keep = scene.api.request

    def lose(method: str, path: str, **rest: Any) -> dict[str, Any]:
        answer = keep(method, path, **rest)
        if path.endswith("/status") and not rest.get("query"):
            raise ApiError(0, "Unreachable", "the connection was closed")
        return answer

    scene.api.request = lose  # type: ignore[method-assign]
    with pytest.raises(ApiError):
        scene.tick()
    assert [m for m, _, _ in scene.api.requests] == ["PATCH"]
    scene.api.request = keep  # type: ignore[method-assign]
    scene.tick()
    told = [b["reason"] for m, _, b in scene.api.requests if m == "POST"]
    assert told == ["RegimeChanged"]


def test_an_event_that_was_refused_is_emitted_at_the_next_tick(scene: Scene) -> None:
    refusal = ApiError(500, "InternalError", "etcd is away")
    scene.api.fault = lambda method, path: refusal if path.endswith("/events") else None
    scene.tick()
    scene.api.fault = lambda method, path: None
    scene.tick()
    assert [b["reason"] for m, _, b in scene.api.requests if m == "POST"] == ["RegimeChanged"]


def test_readings_and_decisions_are_counted(scene: Scene) -> None:
    scene.tick()
    labels = {"namespace": "ns", "policy": "chat"}
    sample = scene.metrics.registry.get_sample_value
    assert sample("evictune_regime_info", labels | {"regime": "Unknown"}) == 1
    assert sample("evictune_decisions_total", labels | {"reason": "RegimeChanged"}) == 1
    assert sample("evictune_reading", labels | {"reading": "kv_usage"}) is None
    scene.metrics.forget(KEY)
    names = {s.name for f in scene.metrics.registry.collect() for s in f.samples if s.labels}
    assert names == set()


def test_the_ttft_is_told_as_the_interval_that_it_is_known_by() -> None:
    unknown = missing_target()
    readings = readings_of(replace(unknown, ttft=Interval(0.8, math.inf, 0.9, 412)))
    assert readings["ttft_lower_seconds"] == 0.8
    assert readings["ttft_upper_seconds"] == math.inf
    assert (readings["ttft_seconds"], readings["ttft_requests"]) == (0.9, 412)
    assert set(readings_of(unknown)) == set(readings)
    assert not any(readings_of(unknown).values())


def test_a_decision_is_told_with_its_time(scene: Scene) -> None:
    scene.tick()
    labels = {"namespace": "ns", "policy": "chat", "reason": "RegimeChanged"}
    sample = scene.metrics.registry.get_sample_value
    assert sample("evictune_last_decision_timestamp_seconds", labels) == EPOCH


def test_engines_of_a_policy_come_and_go() -> None:
    metrics = OperatorMetrics()
    metrics.show_engines(("ns", "other"), {("owl-a", "0")})
    metrics.show_engines(KEY, {("owl-a", "0"), ("owl-b", "0")})
    metrics.show_engines(KEY, {("owl-b", "0"), ("owl-b", "1")})
    assert _engines(metrics, "chat") == [("owl-b", "0"), ("owl-b", "1")]
    metrics.forget(KEY)
    assert _engines(metrics, "chat") == []
    metrics.show_engines(KEY, {("owl-b", "0")})
    assert _engines(metrics, "chat") == [("owl-b", "0")]
    assert _engines(metrics, "other") == [("owl-a", "0")]


def _engines(metrics: OperatorMetrics, policy: str) -> list[tuple[str, str]]:
    samples = next(iter(metrics.engine.collect())).samples
    labels = [s.labels for s in samples if s.labels["policy"] == policy]
    return sorted((each["pod"], each["engine"]) for each in labels)


def test_a_tick_that_ends_early_tells_the_conditions_that_it_wrote(scene: Scene) -> None:
    scene.tick()
    unusable = {"ttft": {"quantile": "1.5", "threshold": "800ms"}}
    scene.api.put(PATH, body(slo=unusable) | {"status": scene.status()})
    scene.tick()
    assert scene.shown("Ready") == {"InvalidSpec": 0}
    assert scene.shown("TargetFound") == {"TargetMissing": 0}
    refusal = ApiError(403, "Forbidden", "configmaps is forbidden")
    scene.api.put(PATH, body() | {"status": scene.status()})
    scene.api.fault = lambda method, path: refusal if "/configmaps/" in path else None
    with pytest.raises(ApiError):
        scene.tick()
    assert scene.shown("Ready") == {"ClusterUnavailable": 0}


def test_conditions_that_were_not_written_are_not_told(scene: Scene) -> None:
    scene.meanwhile = lambda: (scene.api.put(PATH, body(mode="Observe")), None)[1]
    scene.tick()
    assert scene.shown("Ready") == {}


@pytest.mark.parametrize("end", ["invalid", "refused", "away"])
def test_what_was_seen_is_not_shown_once_nothing_is_seen(scene: Scene, end: str) -> None:
    def regimes() -> list[str]:
        return [s.labels["regime"] for s in next(iter(scene.metrics.regime.collect())).samples]

    scene.tick()
    assert regimes() == ["Unknown"]
    scene.metrics.show_slo(KEY, False)
    scene.metrics.show_reading(KEY, "kv_usage", 0.5)
    if end == "invalid":
        scene.api.put(PATH, body(slo={"ttft": {"quantile": "2", "threshold": "800ms"}}))
        scene.tick()
    else:
        error = ApiError(0 if end == "away" else 403, "No", "no")
        part = "" if end == "away" else "/configmaps/"
        scene.api.fault = lambda method, path: error if part in path else None
        with pytest.raises(ApiError):
            scene.tick()
    sample = scene.metrics.registry.get_sample_value
    policy = {"namespace": "ns", "policy": "chat"}
    assert regimes() == []
    assert sample("evictune_slo_met", policy) is None
    assert sample("evictune_reading", policy | {"reading": "kv_usage"}) is None
    # What is remembered, or says what is wanted, is as true as before.
    assert sample("evictune_ttft_threshold_seconds", policy) == 0.8
    scene.api.fault = lambda method, path: None
    scene.api.put(PATH, body())
    scene.tick()
    assert regimes() == ["Unknown"]


@pytest.mark.parametrize(
    ("mode", "fleet", "shown"),
    [
        ("Auto", "Auto", "Auto"),
        ("Auto", "Recommend", "Recommend"),
        ("Auto", "Suspend", "Auto"),
        ("Observe", "Recommend", "Observe"),
    ],
)
def test_the_mode_in_effect_is_told(scene: Scene, mode: str, fleet: str, shown: str) -> None:
    scene.tick()
    scene.ticker._fleet = FleetMode(fleet)
    scene.api.put(PATH, body(mode=mode))
    scene.tick()
    samples = next(iter(scene.metrics.mode.collect())).samples
    assert [(s.labels["mode"], s.value) for s in samples] == [(shown, 1)]


def test_conditions_quarantine_and_threshold_are_told(scene: Scene) -> None:
    scene.tick()
    sample = scene.metrics.registry.get_sample_value
    policy = {"namespace": "ns", "policy": "chat"}
    found = {**policy, "condition": "TargetFound"}
    status, reason, _ = scene.ready()
    assert status == "False"
    ready = {**policy, "condition": "Ready", "reason": reason}
    assert sample("evictune_condition_status", ready) == 0
    assert sample("evictune_condition_status", found | {"reason": reason}) == 0
    assert sample("evictune_quarantined_values", policy) == 0
    assert sample("evictune_ttft_threshold_seconds", policy) == 0.8


def test_a_condition_has_one_series_whatever_its_reason() -> None:
    metrics = OperatorMetrics()
    for status, reason in (("False", "FightDetected"), ("Unknown", "NoReadyEngines")):
        condition = {"type": "PolicyActive", "status": status, "reason": reason}
        metrics.show_conditions(KEY, [condition])
    samples = next(iter(metrics.condition.collect())).samples
    assert [(s.labels["reason"], s.value) for s in samples] == [("NoReadyEngines", -1)]
