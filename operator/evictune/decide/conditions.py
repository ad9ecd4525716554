"""The policy's conditions, from the readings and what was decided."""

from __future__ import annotations

from evictune.api.decision import Condition, ConditionType, Memory
from evictune.api.knobs import KnobValues
from evictune.api.observation import EngineObservation, QuantileReading, Reading, Unknown
from evictune.api.reasons import Reason
from evictune.decide.changes import silent_engines
from evictune.decide.fractions import misfit
from evictune.decide.situation import Hold, Situation, follows, sentence, show

# A reading that only needs time is not a fault.
_TRANSIENT = (Reason.TOO_FEW_SAMPLES, Reason.WARMING_UP, Reason.INCOMPLETE_COVERAGE)


def conditions(situation: Situation, holds: tuple[Hold, ...]) -> tuple[Condition, ...]:
    """All five. `situation.memory` is the memory after the decision."""
    target, metrics = _target_found(situation), _metrics_available(situation)
    return (
        _ready(situation, target, metrics),
        target,
        metrics,
        _policy_active(situation, situation.memory, holds),
        _slo_met(situation, holds),
    )


def _ready(situation: Situation, target: Condition, metrics: Condition) -> Condition:
    def ready(status: bool | None, reason: Reason, message: str) -> Condition:
        return Condition(ConditionType.READY, status, reason, message)

    if situation.observation.conflict:
        return ready(False, Reason.CONFLICT, sentence(situation.observation.conflict))
    for needed in (target, metrics):
        if needed.status is not True:
            return ready(needed.status, needed.reason, needed.message)
    if situation.suspended:
        reason, why = situation.suspended
        return ready(True, reason, f"{sentence(why)}: values in force stay as they are.")
    mode = situation.policy.spec.mode
    if situation.observation.fleet.limits(mode):
        message = "Followed in mode Recommend: the administrator's fleet.mode allows no more."
        return ready(True, Reason.FLEET_SWITCH, message)
    return ready(True, Reason.READY, f"Followed in mode {mode}.")


def _target_found(situation: Situation) -> Condition:
    state, ref = situation.observation.target, situation.policy.spec.target_ref
    kind = ConditionType.TARGET_FOUND
    name = f"{ref.kind} {ref.name}"
    if not state.found:
        reason = state.problem or Reason.TARGET_MISSING
        return Condition(kind, False, reason, state.message or f"There is no {name}.")
    if state.problem is not None:
        return Condition(kind, False, state.problem, state.message or state.problem.meaning)
    if not situation.observation.engines:
        return Condition(kind, False, Reason.NO_READY_ENGINES, f"No pod of {name} is ready.")
    ready = f"{state.ready_replicas} of {state.desired_replicas} pods ready"
    return Condition(kind, True, Reason.TARGET_FOUND, f"{name}: {ready}.")


def _metrics_available(situation: Situation) -> Condition:
    kind = ConditionType.METRICS_AVAILABLE
    missing = [
        (name, reading) for name, reading in _needed(situation) if isinstance(reading, Unknown)
    ]
    fallback = situation.observation.fallback
    if not missing:
        source = f"Source {situation.policy.spec.source!r} gives every reading needed."
        message = f"{sentence(fallback)}." if fallback else source
        return Condition(kind, True, Reason.METRICS_AVAILABLE, message)
    told = [f"{name}: {reading.message}" for name, reading in missing]
    message = "; ".join([*told, fallback] if fallback else told)
    lasting = [reading for _, reading in missing if reading.reason not in _TRANSIENT]
    if lasting:
        return Condition(kind, False, lasting[0].reason, message)
    return Condition(kind, None, missing[0][1].reason, message)


def _needed(situation: Situation) -> list[tuple[str, QuantileReading | Reading]]:
    """The readings without which the objectives cannot be judged."""
    seen, slo = situation.observation, situation.policy.spec.slo
    needed: list[tuple[str, QuantileReading | Reading]] = [
        ("TTFT", seen.ttft),
        ("KV-cache usage", seen.kv_usage),
    ]
    if slo.max_preemptions_per_second is not None:
        needed.append(("preemptions", seen.preemptions))
    return needed


def _policy_active(situation: Situation, memory: Memory, holds: tuple[Hold, ...]) -> Condition:
    def active(status: bool | None, reason: Reason, message: str) -> Condition:
        return Condition(ConditionType.POLICY_ACTIVE, status, reason, message)

    if situation.observation.conflict:
        return active(False, Reason.CONFLICT, sentence(situation.observation.conflict))
    for reason, message in holds:
        if reason is Reason.FIGHT_DETECTED:
            return active(False, reason, f"{sentence(message)}.")
    if memory.pending is not None:
        wanted = memory.pending
        silent = silent_engines(situation, wanted.revision, wanted.change_to)
        if silent is not None:
            message = f"Revision {wanted.revision} is not in force everywhere yet: {silent}."
            return active(False, Reason.POLICY_NOT_ACTIVE, message)
    values = memory.pending.change_to if memory.pending else situation.present
    for engine in situation.observation.engines:
        if not follows(engine, values):
            return active(False, Reason.POLICY_NOT_ACTIVE, _not_following(engine, values))
    differing = None if memory.pending else misfit(situation)
    if differing is not None:
        return active(False, Reason.FRACTION_NOT_IN_FORCE, f"{sentence(differing)}.")
    if not situation.observation.engines:
        return active(None, Reason.NO_READY_ENGINES, "No engine is ready.")
    reason = Reason.STOCK if values.untouched else Reason.POLICY_ACTIVE
    return active(True, reason, f"Every ready engine evicts by {show(values)}.")


def _not_following(engine: EngineObservation, values: KnobValues) -> str:
    name = f"Engine {engine.engine} of pod {engine.pod}"
    if engine.in_force is None:
        return f"{name} does not show the plugin on its metrics port."
    refused = engine.refused_document and f" It refused the document: {engine.refused_document}."
    return f"{name} evicts by {show(engine.in_force)}, not {show(values)}.{refused}"


def _slo_met(situation: Situation, holds: tuple[Hold, ...]) -> Condition:
    def met(status: bool | None, reason: Reason, objectives: list[str]) -> Condition:
        return Condition(ConditionType.SLO_MET, status, reason, f"{'; '.join(objectives)}.")

    objectives = situation.objectives
    violated = [each.message for each in objectives if each.met is False]
    if violated:
        for reason, message in holds:
            if reason is Reason.EXHAUSTED:
                return met(False, reason, [sentence(message)])
        return met(False, Reason.SLO_VIOLATED, violated)
    unclear = [each for each in objectives if each.met is None]
    if unclear:
        return met(None, unclear[0].reason, [each.message for each in unclear])
    return met(True, Reason.SLO_MET, [each.message for each in objectives])
