"""Is each objective met, violated, or can it not be told?

A quantile from buckets is an interval. It counts as met or violated only when the whole interval
clears the threshold by the tolerance: a reading that hovers about the threshold moves nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal

from evictune.api.observation import Idle, Interval, Observation, QuantileReading, Reading, Unknown
from evictune.api.policy import SLO, EvictionPolicySpec, TTFTObjective
from evictune.api.quantity import format_duration
from evictune.api.reasons import Reason


@dataclass(frozen=True)
class Objective:
    """met: True, False (violated) or None (cannot be told, for `reason`)."""

    name: str
    met: bool | None
    reason: Reason
    message: str


def judge(spec: EvictionPolicySpec, observation: Observation) -> tuple[Objective, ...]:
    """Every objective of the policy, TTFT first."""
    slo, tolerance = spec.slo, float(spec.behavior.tolerance)
    return (judge_ttft(slo.ttft, tolerance, observation.ttft), *_limits(slo, observation))


def judge_ttft(objective: TTFTObjective, tolerance: float, reading: QuantileReading) -> Objective:
    """The TTFT objective."""
    name = f"TTFT p{float(objective.quantile) * 100:g}"
    if isinstance(reading, Unknown):
        return Objective(name, None, reading.reason, f"{name} is unknown: {reading.message}")
    if isinstance(reading, Idle):
        return Objective(name, None, Reason.IDLE, f"{name}: no request in the window")
    threshold = objective.threshold
    low, high = threshold * (1 - tolerance), threshold * (1 + tolerance)
    limit = f"the threshold {format_duration(threshold)}"
    shown = f"{name} {show_interval(reading)}"
    if reading.upper <= low:
        return Objective(name, True, Reason.SLO_MET, f"{shown} is below {limit}")
    if reading.lower > high:
        return Objective(name, False, Reason.SLO_VIOLATED, f"{shown} is above {limit}")
    if reading.lower < low and reading.upper > high:
        message = f"{shown}: this histogram bucket spans {limit}"
        return Objective(name, None, Reason.BUCKET_TOO_COARSE, message)
    return Objective(
        name, None, Reason.SLO_UNCERTAIN, f"{shown} is within {tolerance:.0%} of {limit}"
    )


def show_interval(reading: Interval) -> str:
    """A quantile for people: its estimate, or what bounds it where that is all there is."""
    if math.isinf(reading.upper):
        return f"at least {format_duration(reading.lower)}"
    return format_duration(reading.estimate)


def _limits(slo: SLO, observation: Observation) -> tuple[Objective, ...]:
    wanted = (
        ("preemptions per second", slo.max_preemptions_per_second, observation.preemptions),
        ("KV-cache usage", slo.max_kv_cache_usage, observation.kv_usage),
    )
    return tuple(
        _judge_limit(name, limit, reading) for name, limit, reading in wanted if limit is not None
    )


def _judge_limit(name: str, limit: Decimal, reading: Reading) -> Objective:
    if isinstance(reading, Unknown):
        return Objective(name, None, reading.reason, f"{name}: {reading.message}")
    if isinstance(reading, Idle):
        return Objective(name, None, Reason.IDLE, f"{name}: no traffic")
    met = reading.value <= float(limit)
    reason = Reason.SLO_MET if met else Reason.SLO_VIOLATED
    return Objective(
        name, met, reason, f"{name} {reading.value:.3g} is {'within' if met else 'above'} {limit}"
    )
