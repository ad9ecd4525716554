"""Memory, conditions and readings as .status. The way back is `memory_from_status`.

Times are whole seconds, as Kubernetes writes them, rounded up: a wait may last a second longer,
never shorter. Measured values are strings: with a unit, or the word Unknown or Idle. A key without
a value is absent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from evictune.api.decision import (
    Applied,
    Baseline,
    Condition,
    ConditionType,
    Decision,
    DecisionRecord,
    Memory,
    Pending,
    Quarantined,
    Recommendation,
    RegimeState,
    Shortage,
    Trial,
    Turn,
)
from evictune.api.knobs import KnobValues
from evictune.api.memory import UNBOUNDED, memory_from_status
from evictune.api.observation import Interval, Observation, Reading, Unknown, Value
from evictune.api.policy import EvictionPolicy
from evictune.api.quantity import FieldError, format_duration, format_fraction
from evictune.api.reasons import Reason
from evictune.api.status_schema import MAX_DECISIONS, MAX_DISRUPTIONS, MAX_HOLDS, MAX_QUARANTINE
from evictune.api.times import format_time

T = TypeVar("T")
Json = dict[str, Any]

__all__ = ["invalid_status", "memory_from_status", "status_of"]


def status_of(
    policy: EvictionPolicy, decision: Decision, observation: Observation, now: float
) -> Json:
    """The whole of .status after a decision."""
    memory = decision.memory
    return _present(
        observedGeneration=policy.generation,
        conditions=[_condition(policy, each, now) for each in decision.conditions],
        regime=memory.regime and _regime(memory.regime),
        observed=_observed(observation),
        engines=_engines(policy, memory, observation),
        applied=memory.applied and _applied(memory.applied, observation),
        pending=memory.pending and _pending(memory.pending),
        recommendation=memory.recommendation and _recommendation(memory.recommendation),
        decisions=[_record(each) for each in memory.decisions[-MAX_DECISIONS:]],
        quarantine=[_quarantined(each) for each in memory.quarantine[-MAX_QUARANTINE:]],
        lastChangeTime=_maybe(_time, memory.last_change_time),
        holds=_holds(policy, decision) or None,
        shortage=memory.shortage and _shortage(memory.shortage),
        trial=memory.trial and _trial(memory.trial),
        disruptions=[{"time": _time(each)} for each in memory.disruptions[-MAX_DISRUPTIONS:]]
        or None,
    )


def _holds(policy: EvictionPolicy, decision: Decision) -> list[Json]:
    """What holds a wish back: told where engines would be restarted, which people wait for."""
    if not policy.restarts_engines:
        return []
    told = decision.holds[:MAX_HOLDS]
    return [{"reason": str(reason), "message": message} for reason, message in told]


def invalid_status(body: Mapping[str, Any], error: FieldError, now: float) -> Json:
    """The status of a resource that cannot be used."""
    return unready_status(body, Reason.INVALID, str(error), now)


def unready_status(body: Mapping[str, Any], reason: Reason, message: str, now: float) -> Json:
    """The status of a resource that is not followed: what was remembered stays, Ready is False."""
    metadata, status = body.get("metadata") or {}, dict(body.get("status") or {})
    condition = Condition(ConditionType.READY, False, reason, message)
    generation = int(metadata.get("generation") or 0)
    ready = _condition_body(generation, status, condition, now)
    others = [each for each in _conditions_of(status) if each.get("type") != ready["type"]]
    return status | {"observedGeneration": generation, "conditions": [ready, *others]}


def _condition(policy: EvictionPolicy, condition: Condition, now: float) -> Json:
    return _condition_body(policy.generation, policy.status, condition, now)


def _condition_body(
    generation: int, old_status: Mapping[str, Any], condition: Condition, now: float
) -> Json:
    """`lastTransitionTime` stays while the condition's status does."""
    status = {True: "True", False: "False", None: "Unknown"}[condition.status]
    since = format_time(now)
    for old in _conditions_of(old_status):
        if old.get("type") == condition.type and old.get("status") == status:
            since = str(old.get("lastTransitionTime") or since)
    return {
        "type": str(condition.type),
        "status": status,
        "observedGeneration": generation,
        "lastTransitionTime": since,
        "reason": str(condition.reason),
        "message": condition.message,
    }


def _conditions_of(status: Mapping[str, Any]) -> list[Json]:
    found = status.get("conditions")
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _regime(regime: RegimeState) -> Json:
    return {"name": str(regime.name), "since": _time(regime.since), "message": regime.message}


def _shortage(shortage: Shortage) -> Json:
    return {"since": _time(shortage.since), "seen": _time(shortage.seen)}


def _values(values: KnobValues) -> Json:
    return _present(
        xiTokens=values.xi_tokens,
        qHatTokens=values.q_hat_tokens,
        gpuMemoryUtilization=_maybe(format_fraction, values.fraction),
    )


def _applied(applied: Applied, observation: Observation) -> Json:
    document = observation.document
    followed = document is not None and document.revision == applied.revision
    return _present(
        revision=applied.revision,
        decisionID=applied.decision_id,
        values=_values(applied.values),
        expires=_time(document.expires) if document and followed else None,
    )


def _pending(pending: Pending) -> Json:
    return _present(
        decisionID=pending.decision_id,
        revision=pending.revision,
        phase=str(pending.phase),
        **{"from": _values(pending.change_from)},
        to=_values(pending.change_to),
        baseline=_baseline(pending.baseline),
        reason=str(pending.reason),
        startTime=_time(pending.start_time),
        acknowledgedTime=_maybe(_time, pending.acknowledged_time),
        revertOf=pending.revert_of or None,
        pods=[_turn(each) for each in pending.turns] or None,
    )


def _turn(turn: Turn) -> Json:
    return _present(
        name=turn.pod,
        uid=turn.uid,
        revision=turn.revision,
        restarts=turn.restarts,
        startTime=_time(turn.start_time),
        backTime=_maybe(_time, turn.back_time),
        warmTime=_maybe(_time, turn.warm_time),
    )


def _trial(trial: Trial) -> Json:
    return _present(
        decisionID=trial.decision_id,
        **{"from": _values(trial.values_before)},
        until=_time(trial.until),
        manifest=_maybe(format_fraction, trial.manifest),
        pods=[_turn(each) for each in trial.turns] or None,
    )


def _baseline(baseline: Baseline) -> Json:
    return _present(
        ttftLower=_maybe(_seconds, baseline.ttft_lower),
        ttftUpper=_maybe(_seconds, baseline.ttft_upper),
        ttftEstimate=_maybe(_seconds, baseline.ttft_estimate),
        aboveThreshold=_maybe(_number, baseline.share_above),
        uncachedTokensPerSecond=_maybe(_number, baseline.uncached_tokens),
        requests=_maybe(_number, baseline.requests),
        replicas=baseline.replicas,
        fingerprint=baseline.fingerprint or None,
        hitRatio=_maybe(_number, baseline.hit_ratio),
        preemptionsPerSecond=_maybe(_number, baseline.preemptions),
    )


def _recommendation(recommendation: Recommendation) -> Json:
    return {
        "target": _values(recommendation.target),
        "uncapped": _values(recommendation.uncapped),
        "basis": recommendation.basis,
    }


def _record(record: DecisionRecord) -> Json:
    return _present(
        decisionID=record.decision_id,
        time=_time(record.time),
        reason=str(record.reason),
        message=record.message,
        **{"from": _maybe(_values, record.change_from)},
        to=_maybe(_values, record.change_to),
    )


def _quarantined(quarantined: Quarantined) -> Json:
    return _present(
        values=_values(quarantined.values),
        fingerprint=quarantined.fingerprint,
        until=_time(quarantined.until),
        reason=str(quarantined.reason),
        ttft=_maybe(_seconds, quarantined.ttft),
        tooSmall=quarantined.too_small or None,
        times=quarantined.times if quarantined.times > 1 else None,
    )


def _engines(policy: EvictionPolicy, memory: Memory, observation: Observation) -> Json:
    wanted = memory.pending or memory.applied
    acknowledged = [
        engine
        for engine in observation.engines
        if wanted is not None and engine.revision == wanted.revision
    ]
    scale = memory.scale
    return _present(
        total=scale.replicas if scale else observation.target.desired_replicas,
        ready=observation.target.ready_replicas,
        acknowledged=len(acknowledged),
        ineligible=sum(engine.eligible is False for engine in observation.engines),
        **(_fractions(observation) if policy.restarts_engines else {}),
        changedTime=_maybe(_time, scale.changed if scale else None),
    )


def _fractions(observation: Observation) -> Json:
    shown = observation.engines
    return {
        "gpuMemoryUtilization": _each(format_fraction(e.fraction) for e in shown if e.fraction),
        "kvBlocks": _each(str(e.blocks) for e in shown if e.blocks),
    }


def _each(shown: Iterable[str]) -> str | None:
    """What engines show, each value once."""
    return ", ".join(sorted(set(shown))) or None


def _observed(observation: Observation) -> Json:
    return {
        "ttft": _ttft(observation),
        "kvCacheUsage": _measured(observation.kv_usage),
        "preemptionsPerSecond": _measured(observation.preemptions),
        "queueTime": _measured(observation.queue_time, format_duration),
        "hitRatio": _measured(observation.hit_ratio),
        "running": _measured(observation.running),
        "waiting": _measured(observation.waiting),
        "prefillTokensPerSecond": _measured(observation.prefill_rate),
        "uncachedTokensPerSecond": _measured(observation.uncached_tokens),
        "promptTokensPerRequest": _measured(observation.prompt_tokens_per_request),
        "evictedProtected": _measured(observation.evicted_protected),
        "evictedTelSafe": _measured(observation.evicted_tel_safe),
        "evictedLru": _measured(observation.evicted_lru),
        "recomputedTokens": _measured(observation.recomputed_tokens),
        "metricNames": [
            {"measure": measure, "name": name}
            for measure, name in sorted(observation.metric_names.items())
        ],
    }


def _ttft(observation: Observation) -> Json:
    reading = observation.ttft
    if not isinstance(reading, Interval):
        word = "Unknown" if isinstance(reading, Unknown) else "Idle"
        keys = ("lower", "upper", "estimate", "requests", "aboveThreshold")
        return dict.fromkeys(keys, word)
    return {
        "lower": _for_people(reading.lower),
        "upper": _for_people(reading.upper),
        "estimate": _for_people(reading.estimate),
        "requests": f"{reading.requests:.0f}",  # an increase is interpolated: say whole requests
        "aboveThreshold": _rounded(reading.share_above),
    }


def _measured(reading: Reading, show: Callable[[float], str] | None = None) -> str:
    if isinstance(reading, Value):
        return (show or _rounded)(reading.value)
    return "Unknown" if isinstance(reading, Unknown) else "Idle"


def _for_people(seconds: float) -> str:
    return UNBOUNDED if math.isinf(seconds) else format_duration(seconds)


def _rounded(value: float) -> str:
    """Three significant digits at least, without an exponent."""
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.3f}".rstrip("0").rstrip(".")


def _number(value: float) -> str:
    return f"{value:.6f}".rstrip("0").rstrip(".")


def _seconds(value: float) -> str:
    """Seconds to the microsecond: what is compared later is not rounded for people."""
    return UNBOUNDED if math.isinf(value) else f"{_number(value)}s"


def _time(seconds: float) -> str:
    return format_time(math.ceil(seconds))


def _maybe(convert: Callable[[T], Any], value: T | None) -> Any:
    return None if value is None else convert(value)


def _present(**fields: Any) -> Json:
    """The fields that have a value."""
    return {name: value for name, value in fields.items() if value is not None}
