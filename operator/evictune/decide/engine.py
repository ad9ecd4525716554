"""decide: the whole of the operator's judgement, as one pure function.

The regime is diagnosed; a change under way is carried on; else a wish, if there is one, passes the
guardrails and becomes a change. Whatever is in force is kept alive.
"""

from __future__ import annotations

from dataclasses import replace

from evictune.api.decision import (
    Decision,
    DecisionRecord,
    Memory,
    Recommendation,
    RegimeState,
    Scale,
)
from evictune.api.observation import Observation
from evictune.api.policy import EvictionPolicy, Mode
from evictune.api.reasons import Reason
from evictune.api.status_schema import MAX_DECISIONS
from evictune.decide.changes import begin
from evictune.decide.conditions import conditions
from evictune.decide.diagnosis import diagnose
from evictune.decide.document import keep_alive, reconcile
from evictune.decide.guardrails import guard
from evictune.decide.memory_changes import afterwards, begin_memory
from evictune.decide.memory_wishes import MEMORY_GUARDRAILS, memory_wish
from evictune.decide.protocol import advance
from evictune.decide.shortage import shortage
from evictune.decide.situation import (
    Hold,
    Situation,
    Step,
    identity,
    remember,
    sentence,
    show,
    show_fraction,
)
from evictune.decide.wishes import Wish, wish

# Of the records kept, so many at most tell that the regime changed.
MAX_REGIMES = 3
# Where one of these holds a value back, it is told as a recommendation.
_SHOWN_ONLY = (Reason.RECOMMEND_ONLY, Reason.FLEET_SWITCH, Reason.DISRUPTION_NEVER)


def decide(
    policy: EvictionPolicy, memory: Memory, observation: Observation, now: float
) -> Decision:
    """One tick. `now`: seconds since the epoch. The same arguments give the same decision."""
    # Whichever engine was read first, the same one is named first.
    engines = sorted(observation.engines, key=lambda engine: (engine.pod, engine.engine))
    pods = sorted(observation.pods, key=lambda pod: (pod.name, pod.uid))
    observation = replace(observation, engines=tuple(engines), pods=tuple(pods))
    start = Situation(policy, memory, observation, now)
    situation = replace(start, memory=replace(reconcile(start), scale=_scale(start)))
    regime, changed = _regime(situation)
    situation = replace(situation, memory=replace(situation.memory, regime=regime))
    situation = replace(situation, memory=replace(situation.memory, shortage=shortage(situation)))
    step = advance(situation) if situation.memory.pending else _consider(situation)
    if not step.effects:
        step = keep_alive(replace(situation, memory=step.memory), step)
    audit = (*changed, *step.records)
    kept = replace(step.memory, decisions=_latest((*step.memory.decisions, *audit)))
    after = replace(situation, memory=kept)
    return Decision(
        memory=kept,
        conditions=conditions(after, step.holds),
        effects=step.effects,
        audit=audit,
        holds=step.holds,
        next_check=step.next_check,
    )


def _scale(situation: Situation) -> Scale | None:
    """How many pods are wanted, and when they last came, went or were replaced."""
    target, before = situation.observation.target, situation.memory.scale
    if not target.found:
        return before
    same = before is not None and before.replicas == target.desired_replicas
    if before is not None and same and not target.rollout_in_progress:
        return before
    news = before is not None or target.rollout_in_progress
    return Scale(target.desired_replicas, situation.now if news else None)


def _latest(records: tuple[DecisionRecord, ...]) -> tuple[DecisionRecord, ...]:
    """The last records. A regime that comes and goes does not push out what was changed and why."""
    regimes = [each for each in records if each.reason is Reason.REGIME_CHANGED]
    old = regimes[:-MAX_REGIMES]
    return tuple(each for each in records if each not in old)[-MAX_DECISIONS:]


def _regime(situation: Situation) -> tuple[RegimeState, tuple[DecisionRecord, ...]]:
    """The regime now, and the record of its change. Settling is told by the change itself."""
    name, message = diagnose(situation)
    before, now = situation.memory.regime, situation.now
    if before is not None and before.name is name:
        return RegimeState(name, before.since, message), ()
    state = RegimeState(name, now, message)
    if name is Reason.SETTLING or _last_regime_told(situation.memory).startswith(f"{name}:"):
        return state, ()
    label = identity(situation.policy, "regime", now)
    text = f"{name}: {message}"
    return state, (DecisionRecord(label, now, Reason.REGIME_CHANGED, text),)


def _last_regime_told(memory: Memory) -> str:
    """The regime before settling, in which the policy may find itself again: that is no news."""
    told = [each.message for each in memory.decisions if each.reason is Reason.REGIME_CHANGED]
    return told[-1] if told else ""


def _consider(situation: Situation) -> Step:
    """No change is under way: is one wanted, and may it be made?"""
    regime = situation.memory.regime
    name = regime.name if regime else Reason.UNKNOWN
    ended = afterwards(situation)
    if ended is not None:
        return ended
    wanted = wish(situation, name)
    if wanted is None:
        # Live knobs before restarts.
        larger = memory_wish(situation, name)
        return _consider_memory(situation, larger) if larger else _nothing_wanted(situation, name)
    allowed, holds = guard(situation, wanted)
    situation = _recommended(situation, allowed)
    if holds:
        return Step(situation.memory, records=_told(situation, allowed, holds), holds=holds)
    return _change(situation, allowed)


def _consider_memory(situation: Situation, wanted: Wish) -> Step:
    """A memory fraction is wanted: may engines be restarted for it?"""
    allowed, holds = guard(situation, wanted, MEMORY_GUARDRAILS)
    fits = allowed.target != situation.present and Reason.AT_BOUND not in dict(holds)
    memory = situation.memory
    situation = replace(situation, memory=replace(memory, recommendation=None))
    if fits:
        situation = _recommended(situation, allowed)
    if holds:
        told = _told(situation, allowed, holds) if fits else ()
        return Step(situation.memory, records=told, holds=holds)
    why = memory.regime.message if memory.regime else ""
    message = f"{sentence(show_fraction(allowed.target))}, {allowed.basis}. {why}"
    return begin_memory(situation, allowed, sentence(message))


def _nothing_wanted(situation: Situation, regime: Reason) -> Step:
    memory = situation.memory
    if regime in (Reason.HEALTHY, Reason.NO_REUSE, Reason.QUEUE_BOUND, Reason.CAPACITY_BOUND):
        memory = replace(memory, recommendation=None)
    if regime is not Reason.REUSE_LOST:
        return Step(memory)
    if situation.knobs is None:
        return Step(memory, holds=((Reason.NO_KNOBS, "spec.knobs.tlru is not set"),))
    return Step(memory, holds=((Reason.SAMPLES, "the rate of prefill is unknown"),))


def _change(situation: Situation, wanted: Wish) -> Step:
    """Begin, and note what is left behind: measured, and not to be tried again for a while."""
    if wanted.reason is Reason.REUSE_LOST:
        left = situation.quarantined(situation.present, wanted.reason)
        situation = replace(situation, memory=remember(situation.memory, left))
    why = situation.memory.regime.message if situation.memory.regime else ""
    message = f"{show(situation.present)} -> {show(wanted.target)}: {wanted.basis}. {why}"
    return begin(situation, wanted.target, wanted.reason, sentence(message))


def _recommended(situation: Situation, wanted: Wish) -> Situation:
    if situation.policy.spec.mode is Mode.OBSERVE:
        return replace(situation, memory=replace(situation.memory, recommendation=None))
    told = Recommendation(wanted.target, wanted.uncapped, wanted.basis)
    return replace(situation, memory=replace(situation.memory, recommendation=told))


def _told(
    situation: Situation, wanted: Wish, holds: tuple[Hold, ...]
) -> tuple[DecisionRecord, ...]:
    """A record where a hold is news: a new recommendation, or a search that came to its end."""
    reasons = [reason for reason, _ in holds]
    if reasons == [Reason.EXHAUSTED] and not _told_since_change(situation, Reason.EXHAUSTED):
        return (_note(situation, wanted, Reason.EXHAUSTED, sentence(holds[0][1])),)
    shown = any(reason in reasons for reason in _SHOWN_ONLY)
    if shown and not _last_recommended(situation, wanted):
        message = f"{sentence(show(wanted.target))} would be set: {wanted.basis}."
        return (_note(situation, wanted, Reason.RECOMMENDED, message),)
    return ()


def _note(situation: Situation, wanted: Wish, reason: Reason, message: str) -> DecisionRecord:
    label = identity(situation.policy, "note", situation.now)
    return DecisionRecord(label, situation.now, reason, message, situation.present, wanted.target)


def _told_since_change(situation: Situation, reason: Reason) -> bool:
    since = situation.memory.last_change_time or 0.0
    return any(
        record.reason is reason and record.time >= since for record in situation.memory.decisions
    )


def _last_recommended(situation: Situation, wanted: Wish) -> bool:
    """Whether the last recommendation told was this one."""
    told = [
        record.change_to
        for record in situation.memory.decisions
        if record.reason is Reason.RECOMMENDED
    ]
    return bool(told) and told[-1] == wanted.target
