"""Memory back from .status: what the operator knew before it was restarted.

Lenient: a status written by an older or newer operator loses no quarantine because some other field
is missing or unknown. The other direction is `evictune.api.status`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, TypeVar

from evictune.api.decision import (
    Applied,
    Baseline,
    DecisionRecord,
    Memory,
    Pending,
    Phase,
    Quarantined,
    Recommendation,
    RegimeState,
    Scale,
    Shortage,
    Trial,
    Turn,
)
from evictune.api.knobs import STOCK_LRU, KnobValues
from evictune.api.quantity import parse_duration
from evictune.api.reasons import REASONS, Reason
from evictune.api.times import parse_time

T = TypeVar("T")
Json = Mapping[str, Any]

UNBOUNDED = "+Inf"


def memory_from_status(status: Mapping[str, Any]) -> Memory:
    """What the operator remembers; whatever cannot be read is left out, the rest kept."""
    return Memory(
        regime=_read(_regime_from, status.get("regime")),
        pending=_read(_pending_from, status.get("pending")),
        applied=_read(_applied_from, status.get("applied")),
        recommendation=_read(_recommendation_from, status.get("recommendation")),
        decisions=_read_list(_record_from, status.get("decisions")),
        quarantine=_read_list(_quarantined_from, status.get("quarantine")),
        last_change_time=_read(parse_time, status.get("lastChangeTime")),
        scale=_read(_scale_from, status.get("engines")),
        shortage=_read(_shortage_from, status.get("shortage")),
        trial=_read(_trial_from, status.get("trial")),
        disruptions=_read_list(_disruption_from, status.get("disruptions")),
    )


def _read(convert: Callable[[Any], T], value: Any) -> T | None:
    """The converted value, or None where it is missing or not what this version writes."""
    if value is None:
        return None
    try:
        return convert(value)
    except (KeyError, TypeError, ValueError, AttributeError, InvalidOperation):
        return None


def _read_list(convert: Callable[[Any], T], value: Any) -> tuple[T, ...]:
    items = value if isinstance(value, list | tuple) else ()
    return tuple(item for item in (_read(convert, each) for each in items) if item is not None)


def _regime_from(body: Json) -> RegimeState:
    message = str(body.get("message", ""))
    return RegimeState(REASONS[body["name"]], parse_time(body["since"]), message)


def _values_from(body: Json) -> KnobValues:
    xi, q_hat = body.get("xiTokens"), body.get("qHatTokens")
    order = STOCK_LRU if xi is None else KnobValues(int(xi), int(q_hat or 0))
    return order.at(_read(Decimal, body.get("gpuMemoryUtilization")))


def _pending_from(body: Json) -> Pending:
    return Pending(
        decision_id=str(body["decisionID"]),
        revision=int(body["revision"]),
        # Of another version: from its first step on, what was done already repeats harmlessly.
        phase=_read(Phase, body.get("phase")) or Phase.WRITING,
        change_from=_values_from(body.get("from") or {}),
        change_to=_values_from(body.get("to") or {}),
        baseline=_baseline_from(body.get("baseline") or {}),
        reason=REASONS.get(body.get("reason", "")) or Reason.INTENDED,
        start_time=parse_time(body["startTime"]),
        acknowledged_time=_read(parse_time, body.get("acknowledgedTime")),
        revert_of=str(body.get("revertOf") or ""),
        turns=_read_list(_turn_from, body.get("pods")),
    )


def _turn_from(body: Json) -> Turn:
    return Turn(
        pod=str(body["name"]),
        uid=str(body.get("uid", "")),
        revision=int(body.get("revision") or 0),
        restarts=int(body["restarts"]),
        start_time=parse_time(body["startTime"]),
        back_time=_read(parse_time, body.get("backTime")),
        warm_time=_read(parse_time, body.get("warmTime")),
    )


def _shortage_from(body: Json) -> Shortage:
    return Shortage(parse_time(body["since"]), parse_time(body["seen"]))


def _trial_from(body: Json) -> Trial:
    return Trial(
        decision_id=str(body.get("decisionID", "")),
        values_before=_values_from(body.get("from") or {}),
        until=parse_time(body["until"]),
        manifest=_read(Decimal, body.get("manifest")),
        turns=_read_list(_turn_from, body.get("pods")),
    )


def _disruption_from(body: Json) -> float:
    return parse_time(body["time"])


def _baseline_from(body: Json) -> Baseline:
    return Baseline(
        ttft_lower=_read(_seconds_from, body.get("ttftLower")),
        ttft_upper=_read(_seconds_from, body.get("ttftUpper")),
        ttft_estimate=_read(_seconds_from, body.get("ttftEstimate")),
        share_above=_read(float, body.get("aboveThreshold")),
        uncached_tokens=_read(float, body.get("uncachedTokensPerSecond")),
        requests=_read(float, body.get("requests")),
        replicas=_read(int, body.get("replicas")),
        fingerprint=str(body.get("fingerprint", "")),
        hit_ratio=_read(float, body.get("hitRatio")),
        preemptions=_read(float, body.get("preemptionsPerSecond")),
    )


def _applied_from(body: Json) -> Applied:
    values = _values_from(body.get("values") or {})
    return Applied(int(body["revision"]), str(body.get("decisionID", "")), values)


def _recommendation_from(body: Json) -> Recommendation:
    target, uncapped = _values_from(body["target"]), _values_from(body["uncapped"])
    return Recommendation(target, uncapped, str(body.get("basis", "")))


def _record_from(body: Json) -> DecisionRecord:
    return DecisionRecord(
        decision_id=str(body["decisionID"]),
        time=parse_time(body["time"]),
        reason=REASONS[body["reason"]],
        message=str(body.get("message", "")),
        change_from=_read(_values_from, body.get("from")),
        change_to=_read(_values_from, body.get("to")),
    )


def _quarantined_from(body: Json) -> Quarantined:
    return Quarantined(
        values=_values_from(body["values"]),
        fingerprint=str(body.get("fingerprint", "")),
        until=parse_time(body["until"]),
        # A reason of another version must not open the value again.
        reason=REASONS.get(body.get("reason", "")) or Reason.QUARANTINED,
        ttft=_read(_seconds_from, body.get("ttft")),
        too_small=body.get("tooSmall") is True,
        times=max(1, _read(int, body.get("times")) or 1),
    )


def _scale_from(body: Json) -> Scale:
    return Scale(int(body["total"]), _read(parse_time, body.get("changedTime")))


def _seconds_from(text: str) -> float:
    return math.inf if text == UNBOUNDED else parse_duration("duration", text)
