"""The knob document seen from memory: what it should hold, and when it is written again."""

from __future__ import annotations

from dataclasses import replace

from evictune.api.decision import Applied, DecisionRecord, Memory, Pending, WriteKnobs
from evictune.api.knobs import KnobDocument, KnobValues
from evictune.api.quantity import format_duration
from evictune.api.reasons import Reason
from evictune.decide.situation import Situation, Step, identity, release, show

# A document that is lost this often within so many seconds is taken away on purpose.
FIGHT_LIMIT = 2
FIGHT_MEMORY = 3600.0


def reconcile(situation: Situation) -> Memory:
    """Memory brought in line with facts that did not come from us."""
    memory, document = _past(situation), situation.observation.document
    if memory.pending is not None or situation.observation.conflict:
        return memory
    in_force = document is not None and document.expires > situation.now
    known = memory.applied.revision if memory.applied else 0
    # What expired while nothing was kept is history: it does not come back without a decision.
    alive = in_force or (situation.may_write and memory.applied is not None)
    if document is not None and alive and document.revision > known:
        # The status was lost or set back: what the document says is what is applied.
        adopted = Applied(document.revision, "adopted", document.values)
        return release(replace(memory, applied=adopted), document.values, situation.now)
    if not situation.may_write and not in_force:
        # No longer renewed and now expired: the engines are back at stock LRU.
        return replace(memory, applied=None)
    return memory


def _past(situation: Situation) -> Memory:
    """Memory without quarantine that is long over, and without times that are still to come.

    Those were noted by a clock that was ahead: nothing shall wait until it is right again.
    Quarantine that is over is remembered for as long as it lasted: a value that is left once more
    by then stays away for longer.
    """
    memory, now, scale = situation.memory, situation.now, situation.memory.scale
    regime, pending, changed = memory.regime, memory.pending, memory.last_change_time
    if pending is not None:
        acknowledged = pending.acknowledged_time
        pending = replace(
            pending,
            start_time=min(pending.start_time, now),
            acknowledged_time=None if acknowledged is None else min(acknowledged, now),
        )
    left = (
        replace(each, until=min(each.until, now + situation.pause(each.times)))
        for each in memory.quarantine
    )
    if scale is not None and scale.changed is not None:
        scale = replace(scale, changed=min(scale.changed, now))
    return replace(
        memory,
        regime=regime and replace(regime, since=min(regime.since, now)),
        pending=pending,
        last_change_time=None if changed is None else min(changed, now),
        quarantine=tuple(each for each in left if each.until + situation.pause(each.times) > now),
        scale=scale,
    )


def keep_alive(situation: Situation, step: Step) -> Step:
    """The step, which wrote nothing, with what keeps the document alive.

    It is renewed at half of its life, with the revision unchanged, and restored where it was
    lost. One that belongs to a policy which was deleted is taken over before it is collected.
    """
    memory, document = situation.memory, situation.observation.document
    wanted, values = _wanted(memory)
    if wanted is None or values is None or not situation.may_write:
        return step
    ttl = situation.policy.spec.behavior.knob_ttl
    written = WriteKnobs(wanted.revision, values, ttl)
    if document is not None and carries(document, wanted.revision, values):
        # More than its whole life: knobTTL was shortened, or a clock was set back.
        due = not ttl / 2 < document.expires - situation.now <= ttl or not document.owned
        return replace(step, effects=(written,)) if due else step
    return step if situation.suspended else _restored(situation, step, written)


def _restored(situation: Situation, step: Step, written: WriteKnobs) -> Step:
    """The lost document again; but what takes it away each time is not fought."""
    now = situation.now
    lately = [
        record.time
        for record in situation.memory.decisions
        if record.reason is Reason.RESTORED and record.time > now - FIGHT_MEMORY
    ]
    if len(lately) >= FIGHT_LIMIT:
        rest = format_duration(round(min(lately) + FIGHT_MEMORY - now))
        message = f"the knob document was lost {len(lately)} times; it is left alone for {rest}"
        return replace(step, holds=(*step.holds, (Reason.FIGHT_DETECTED, message)))
    what = "was deleted" if situation.observation.document is None else "was set back"
    message = f"The knob document {what}: {show(written.values)} is written again."
    label = identity(situation.policy, f"{written.revision}-restored", now)
    record = DecisionRecord(label, now, Reason.RESTORED, message, None, written.values)
    return replace(step, effects=(written,), records=(*step.records, record))


def carries(document: KnobDocument | None, revision: int, values: KnobValues) -> bool:
    """Whether the document holds this change."""
    return document is not None and document.revision == revision and document.values == values


def _wanted(memory: Memory) -> tuple[Pending | Applied | None, KnobValues | None]:
    """What the document shall hold. Stock LRU that was acknowledged needs no document."""
    if memory.pending is not None:
        return memory.pending, memory.pending.change_to
    if memory.applied is None or memory.applied.values.stock:
        return None, None
    return memory.applied, memory.applied.values
