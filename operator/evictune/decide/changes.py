"""The steps that begin and end a change: each returns the memory, effects and records of it."""

from __future__ import annotations

from dataclasses import replace

from evictune.api.decision import (
    Applied,
    Baseline,
    DecisionRecord,
    Pending,
    Phase,
    Turn,
    WriteKnobs,
)
from evictune.api.knobs import KnobValues, PodKnobs
from evictune.api.reasons import Reason
from evictune.decide.situation import (
    Hold,
    Situation,
    Step,
    follows,
    identity,
    release,
    remember,
    show,
)
from evictune.decide.wishes import within

# How soon, in seconds, to look again while a fact is awaited.
POLL = 1.0


def begin(
    situation: Situation,
    target: KnobValues,
    reason: Reason,
    message: str,
    revert_of: str = "",
    *,
    before: KnobValues | None = None,
    baseline: Baseline | None = None,
    turns: tuple[Turn, ...] = (),
) -> Step:
    """Write down the intent; the document follows once the intent stands.

    before: what a revert restores, where it is not what was applied last. turns: the first pod to
    restart for a memory fraction, of whose readings the baseline is.
    """
    revision = next_revision(situation)
    pending = Pending(
        decision_id=identity(situation.policy, revision, situation.now),
        revision=revision,
        phase=Phase.WRITING,
        change_from=before or situation.present,
        change_to=target,
        baseline=baseline or situation.baseline,
        reason=reason,
        start_time=situation.now,
        revert_of=revert_of,
        turns=turns,
    )
    # What is being set, or taken back, is no longer recommended.
    memory = replace(
        situation.memory,
        pending=pending,
        last_change_time=situation.now,
        recommendation=None,
    )
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
        values = default_of(pending)
        applied = Applied(pending.revision, pending.decision_id, values)
        memory = release(replace(memory, applied=applied), values, situation.now)
    else:
        memory = release(memory, pending.change_from, situation.now)
    return Step(
        memory, records=(record_of(situation, pending, Reason.ABANDONED, f"Given up: {why}."),)
    )


def is_allowed(situation: Situation, values: KnobValues) -> bool:
    """Whether the order of eviction lies within the bounds of spec.knobs."""
    return situation.knobs is None or within(values, situation.knobs) == values


def write(situation: Situation, pending: Pending) -> WriteKnobs:
    """The effect that brings the document to a change."""
    return WriteKnobs(
        pending.revision,
        default_of(pending),
        situation.policy.spec.behavior.knob_ttl,
        _entries(pending, situation.disruption.drain_timeout),
    )


def default_of(pending: Pending) -> KnobValues:
    """The document's default entry: what a pod that starts anew begins with.

    A memory fraction is that only once every engine serves with it; one that is taken back, at
    once.
    """
    if pending.of_memory and not pending.revert_of and pending.phase is not Phase.CONCLUDING:
        return pending.change_from
    return pending.change_to


def _entries(pending: Pending, drain_seconds: float) -> dict[str, PodKnobs]:
    """Per-pod entries: who has the fraction already, and whose turn it is to restart."""
    turn = pending.turn
    if turn is None or pending.phase is Phase.CONCLUDING:
        return {}
    # Of the turn, not of the revision: asked twice, a pod restarts once.
    word = f"t{len(pending.turns)}.{pending.decision_id}"
    entries = {
        each.pod: PodKnobs(pending.change_to) for each in pending.turns if not pending.revert_of
    }
    return entries | {turn.pod: PodKnobs(pending.change_to, word, drain_seconds)}


def moved(situation: Situation, pending: Pending, *records: DecisionRecord) -> Step:
    """The change, one step further."""
    return Step(replace(situation.memory, pending=pending), records=records, next_check=POLL)


def held(situation: Situation, hold: Hold, next_check: float | None = None) -> Step:
    """The change, as far as it was."""
    return Step(situation.memory, holds=(hold,), next_check=next_check)


def silent_engines(situation: Situation, revision: int, values: KnobValues) -> str | None:
    """Who has not acknowledged, in words; None: every ready engine has."""
    engines = situation.observation.engines
    if not engines:
        return "no engine is ready"
    silent = [
        engine for engine in engines if engine.revision != revision or not follows(engine, values)
    ]
    if not silent:
        return None
    first = silent[0]
    refused = f" (it refused the document: {first.refused_document})"
    return (
        f"{len(silent)} of {len(engines)} engines, such as engine {first.engine} of pod {first.pod}"
        f"{refused if first.refused_document else ''}"
    )


def next_revision(situation: Situation) -> int:
    """Above every one that anybody has seen.

    Also under a policy that was deleted: a pod does not try again what failed under its revision.
    """
    memory, document = situation.memory, situation.observation.document
    seen = [engine.revision or 0 for engine in situation.observation.engines]
    seen += [pod.memory.revision for pod in situation.observation.pods if pod.memory]
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
