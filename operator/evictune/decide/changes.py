"""The steps that begin and end a change: each returns the memory, effects and records of it."""

from __future__ import annotations

from dataclasses import replace

from evictune.api.decision import Applied, DecisionRecord, Pending, Phase, WriteKnobs
from evictune.api.knobs import KnobValues
from evictune.api.reasons import Reason
from evictune.decide.situation import (
    Situation,
    Step,
    identity,
    release,
    remember,
    show,
)
from evictune.decide.wishes import within

# How soon, in seconds, to look again while a fact is awaited.
POLL = 1.0


def begin(
    situation: Situation, target: KnobValues, reason: Reason, message: str, revert_of: str = ""
) -> Step:
    """Write down the intent; the document follows once the intent stands."""
    revision = _next_revision(situation)
    pending = Pending(
        decision_id=identity(situation.policy, revision, situation.now),
        revision=revision,
        phase=Phase.WRITING,
        change_from=situation.present,
        change_to=target,
        baseline=situation.baseline,
        reason=reason,
        start_time=situation.now,
        revert_of=revert_of,
    )
    memory = replace(situation.memory, pending=pending, last_change_time=situation.now)
    intended = record_of(situation, pending, Reason.INTENDED, message)
    return Step(memory, (write(situation, pending),), (intended,), next_check=POLL)


def finish(situation: Situation, pending: Pending, reason: Reason, message: str) -> Step:
    """The change stands: its values are the applied ones."""
    applied = Applied(pending.revision, pending.decision_id, pending.change_to)
    kept = replace(situation.memory, pending=None, applied=applied)
    memory = release(kept, pending.change_to, situation.now)
    return Step(memory, records=(record_of(situation, pending, reason, message),))


def revert(situation: Situation, pending: Pending, reason: Reason, told: str) -> Step:
    """Leave the new value, and start on the way back to the old one."""
    left = situation.quarantined(pending.change_to, reason)
    if reason is Reason.ABANDONED:
        # Not in force everywhere: what was measured says nothing of the value.
        left = replace(left, ttft=None, too_small=False)
    memory = remember(situation.memory, left)
    applied = Applied(pending.revision, pending.decision_id, pending.change_to)
    there = replace(situation, memory=replace(memory, pending=None, applied=applied))
    message = f"{told}. Restoring {show(pending.change_from)}."
    return begin(there, pending.change_from, Reason.REVERTED, message, pending.decision_id)


def abandon(situation: Situation, pending: Pending, why: str, *, in_force: bool = False) -> Step:
    """End a change without a verdict. `in_force`: the document carries its values."""
    memory = replace(situation.memory, pending=None)
    if in_force:
        applied = Applied(pending.revision, pending.decision_id, pending.change_to)
        memory = release(replace(memory, applied=applied), pending.change_to, situation.now)
    else:
        memory = release(memory, pending.change_from, situation.now)
    return Step(
        memory, records=(record_of(situation, pending, Reason.ABANDONED, f"Given up: {why}."),)
    )


def is_allowed(situation: Situation, values: KnobValues) -> bool:
    """Whether the values lie within the bounds of spec.knobs."""
    return situation.knobs is None or within(values, situation.knobs) == values


def write(situation: Situation, pending: Pending) -> WriteKnobs:
    """The effect that brings the document to a change."""
    return WriteKnobs(pending.revision, pending.change_to, situation.policy.spec.behavior.knob_ttl)


def _next_revision(situation: Situation) -> int:
    memory, document = situation.memory, situation.observation.document
    seen = [engine.revision or 0 for engine in situation.observation.engines]
    known = [each.revision for each in (memory.applied, memory.pending, document) if each]
    return max([0, *seen, *known]) + 1


def record_of(
    situation: Situation, pending: Pending, reason: Reason, message: str
) -> DecisionRecord:
    """One transition of a change."""
    return DecisionRecord(
        decision_id=pending.decision_id,
        time=situation.now,
        reason=reason,
        message=message,
        change_from=pending.change_from,
        change_to=pending.change_to,
    )
