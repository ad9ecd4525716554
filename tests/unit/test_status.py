"""Status from decisions, and memory back from whatever status there is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import Any

import pytest
from evictune.api.decision import Applied, Memory, Phase, Quarantined
from evictune.api.knobs import KnobDocument, KnobValues
from evictune.api.observation import Idle, Interval, Unknown, Value
from evictune.api.quantity import FieldError
from evictune.api.reasons import Reason
from evictune.api.status import invalid_status, memory_from_status, status_of
from evictune.api.status_schema import OF_THE_MEMORY_FRACTION
from evictune.decide import decide

from tests.support.situations import (
    NOW,
    XI_512,
    applied,
    following,
    make_body,
    make_engine,
    make_pending,
    make_policy,
    observe,
    ttft,
)


def _status(memory: Memory, observation: Any, **spec: Any) -> dict[str, Any]:
    policy = make_policy(**spec)
    return status_of(policy, decide(policy, memory, observation, NOW), observation, NOW)


def _conditions(status: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {each["type"]: (each["status"], each["reason"]) for each in status["conditions"]}


def _paths(value: Any, path: str = "status") -> Iterator[str]:
    """Every path of a status that holds something."""
    inner = value.items() if isinstance(value, dict) else []
    for name, each in [*inner, *(enumerate(value) if isinstance(value, list) else [])]:
        if each is not None:
            yield (place := f"{path}.{name}")
            yield from _paths(each, place)


def test_without_the_memory_fraction_none_of_its_fields_is_written() -> None:
    """An older definition, which lacks them, is good enough then: so they must not be there."""
    engine = make_engine(fraction=Decimal("0.9"), blocks=200)
    left = Quarantined(KnobValues(2048, 60), "", NOW + 60, Reason.NO_DIFFERENCE)
    memory = Memory(quarantine=(left,))
    written = list(_paths(_status(memory, observe(engines=(engine,)))))
    assert "status.pending.baseline.fingerprint" in written
    assert "status.quarantine.0.values.xiTokens" in written
    mine = [f"{path}{end}" for path in OF_THE_MEMORY_FRACTION for end in ("", ".*")]
    assert not [path for path in written for each in mine if fnmatchcase(path, each)]


def test_a_first_change_as_people_see_it() -> None:
    status = _status(Memory(), observe())
    assert status["observedGeneration"] == 3
    assert status["regime"]["name"] == "ReuseLost"
    assert status["regime"]["since"] == "2027-01-15T08:00:00Z"
    assert status["pending"]["phase"] == "Writing"
    assert status["pending"]["to"] == {"xiTokens": 512, "qHatTokens": 60}
    assert status["pending"]["from"] == {}
    assert status["pending"]["baseline"]["ttftEstimate"] == "0.6s"
    assert status["observed"]["ttft"]["estimate"] == "600ms"
    assert status["observed"]["queueTime"] == "10ms"
    assert status["observed"]["evictedLru"] == "500"
    assert [each["reason"] for each in status["decisions"]] == ["RegimeChanged", "Intended"]
    assert status["engines"] == {"total": 1, "ready": 1, "acknowledged": 0, "ineligible": 0}
    assert _conditions(status) == {
        "Ready": ("True", "Ready"),
        "TargetFound": ("True", "TargetFound"),
        "MetricsAvailable": ("True", "MetricsAvailable"),
        "PolicyActive": ("False", "PolicyNotActive"),
        "SLOMet": ("False", "ObjectiveViolated"),
    }


def test_readings_without_a_value_are_words() -> None:
    missing = Unknown(Reason.NO_SERIES, "no series")
    status = _status(Memory(), observe(ttft=missing, hit_ratio=Idle(), kv_usage=missing))
    observed = status["observed"]
    assert set(observed["ttft"].values()) == {"Unknown"}
    assert (observed["hitRatio"], observed["kvCacheUsage"]) == ("Idle", "Unknown")
    assert _conditions(status)["MetricsAvailable"] == ("False", "NoSeriesForTarget")
    assert _conditions(status)["SLOMet"] == ("Unknown", "NoSeriesForTarget")
    assert set(_status(Memory(), observe(ttft=Idle()))["observed"]["ttft"].values()) == {"Idle"}


def test_a_saturated_quantile_is_no_infinity_in_json() -> None:
    pinned = Interval(10.0, float("inf"), 10.0, 400.0, 0.4, 0.4)
    status = _status(Memory(), observe(ttft=pinned))
    assert status["observed"]["ttft"]["upper"] == "+Inf"
    assert status["pending"]["baseline"]["ttftUpper"] == "+Inf"
    json.dumps(status, allow_nan=False)


def test_waiting_for_samples_is_unknown_not_false() -> None:
    few = Unknown(Reason.TOO_FEW_SAMPLES, "12 requests of 100")
    assert _conditions(_status(Memory(), observe(ttft=few)))["MetricsAvailable"] == (
        "Unknown",
        "TooFewSamples",
    )


@pytest.mark.parametrize(
    ("memory", "observation", "active"),
    [
        (Memory(), observe(0.2), ("True", "StockLRU")),
        (applied(XI_512), following(XI_512, ttft=ttft(0.2)), ("True", "PolicyActive")),
        # The engine restarted: not claimed until it is in force again.
        (
            applied(XI_512),
            following(XI_512, ttft=ttft(0.2), engines=(make_engine(),)),
            ("False", "PolicyNotActive"),
        ),
        (Memory(), observe(engines=(make_engine(None, None),)), ("False", "PolicyNotActive")),
        (Memory(), observe(engines=()), ("Unknown", "NoReadyEngines")),
        (
            Memory(pending=make_pending(Phase.SETTLING)),
            following(XI_512, 2),
            ("True", "PolicyActive"),
        ),
        (applied(XI_512), following(XI_512, conflict="taken"), ("False", "Conflict")),
    ],
)
def test_what_is_in_force_is_claimed_when_the_engines_show_it(
    memory: Memory, observation: Any, active: tuple[str, str]
) -> None:
    assert _conditions(_status(memory, observation))["PolicyActive"] == active


def test_out_of_reach_is_the_reason_of_the_objective() -> None:
    left = Quarantined(replace(XI_512, xi_tokens=352), "", NOW + 9, Reason.REVERTED, 0.6)
    memory = applied(XI_512, quarantine=(left,))
    first = decide(make_policy(), memory, following(XI_512), NOW - 60)
    assert _conditions(_status(first.memory, following(XI_512)))["SLOMet"] == (
        "False",
        "TargetOutOfReach",
    )


def test_the_status_says_until_when_values_stay_in_force() -> None:
    status = _status(applied(XI_512), following(XI_512, ttft=ttft(0.2)))
    assert status["applied"]["expires"] == "2027-01-15T08:10:00Z"
    stale = replace(following(XI_512), document=KnobDocument(0, XI_512, NOW + 600))
    assert "expires" not in _status(applied(XI_512), stale, mode="Recommend")["applied"]


def test_a_condition_keeps_its_time_while_its_status_stays() -> None:
    policy = make_policy()
    first = status_of(policy, decide(policy, Memory(), observe(), NOW), observe(), NOW)
    later = replace(policy, status=first)
    met = observe(0.2)
    memory = memory_from_status(first)
    second = status_of(later, decide(later, memory, met, NOW + 60), met, NOW + 60)
    times = {each["type"]: each["lastTransitionTime"] for each in second["conditions"]}
    assert times["TargetFound"] == "2027-01-15T08:00:00Z"
    assert times["SLOMet"] == "2027-01-15T08:01:00Z"


def test_an_invalid_policy_keeps_what_was_remembered() -> None:
    status = _status(applied(XI_512), following(XI_512, ttft=ttft(0.2)))
    body = {**make_body(), "status": status}
    error = FieldError("spec.slo.ttft.threshold", "fast", "write a duration")
    told = invalid_status(body, error, NOW + 5)
    assert told["applied"] == status["applied"]
    ready = told["conditions"][0]
    assert (ready["type"], ready["status"], ready["reason"]) == ("Ready", "False", "InvalidSpec")
    assert "spec.slo.ttft.threshold" in ready["message"]
    assert len(told["conditions"]) == 5


QUARANTINE = {
    "values": {"xiTokens": 512, "qHatTokens": 60},
    "fingerprint": "6.60 requests/s per engine, 420 tokens a prompt",
    "until": "2027-01-15T09:00:00Z",
    "reason": "Reverted",
    "ttft": "0.6s",
}


@pytest.mark.parametrize(
    "rest",
    [
        {},
        {"pending": {"decisionID": "x"}, "regime": {"name": "Someday"}, "applied": 7},
        {"decisions": [{"reason": "Someday"}, 3], "lastChangeTime": "yesterday", "new": {}},
        {"pending": None, "decisions": None},
    ],
)
def test_a_status_of_another_version_loses_no_quarantine(rest: dict[str, Any]) -> None:
    memory = memory_from_status({"quarantine": [QUARANTINE, "rubbish"], **rest})
    assert memory == Memory(
        quarantine=(
            Quarantined(XI_512, QUARANTINE["fingerprint"], NOW + 3600, Reason.REVERTED, 0.6),  # type: ignore[arg-type]
        )
    )


def test_a_reason_of_another_version_does_not_open_a_value_again() -> None:
    memory = memory_from_status({"quarantine": [{**QUARANTINE, "reason": "Someday"}]})
    assert memory.quarantine[0].values == XI_512


def test_lists_have_their_limits() -> None:
    memory = Memory(applied=Applied(1, "a", XI_512))
    for step in range(60):
        memory = decide(make_policy(), memory, following(XI_512), NOW + 100 * step).memory
    assert len(memory.decisions) <= 10
    assert len(memory.quarantine) <= 32


def test_times_are_rounded_up() -> None:
    """A wait may last a second longer, never shorter."""
    policy = make_policy()
    decision = decide(policy, Memory(), observe(), NOW + 0.2)
    status = status_of(policy, decision, observe(prefill_rate=Value(1.0)), NOW + 0.2)
    assert memory_from_status(status).last_change_time == NOW + 1


@pytest.mark.parametrize("field", ["phase", "reason"])
def test_a_change_under_way_of_a_newer_operator_is_not_forgotten(field: str) -> None:
    memory = Memory(pending=make_pending(Phase.SETTLING))
    status = _status(memory, observe(ttft=ttft(0.5)))
    status["pending"] |= {field: "FromTheFuture"}
    pending = memory_from_status(status).pending
    assert pending is not None
    assert pending.revision == make_pending(Phase.SETTLING).revision
