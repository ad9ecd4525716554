"""The knob document seen from memory: what it should hold, and when it is written again."""

from __future__ import annotations

from dataclasses import replace

from evictune.api.decision import Applied, DecisionRecord, Memory, Quarantined, Turn, WriteKnobs
from evictune.api.knobs import KnobDocument
from evictune.api.quantity import format_span
from evictune.api.reasons import Reason
from evictune.decide.changes import write
from evictune.decide.situation import (
    QUARANTINE_MOST,
    Situation,
    Step,
    identity,
    release,
    show,
)

# A document that is lost this often within so many seconds is taken away on purpose.
FIGHT_LIMIT = 2
FIGHT_MEMORY = 3600.0
# For so long after a memory fraction was kept, an engine that ends by itself counts against it: an
# engine that takes too much dies with the first burst that needs what is left of the memory.
TRIAL = 3600.0
DAY = 86400.0


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
    trial, shortage = memory.trial, memory.shortage
    regime, pending, changed = memory.regime, memory.pending, memory.last_change_time
    if pending is not None:
        acknowledged = pending.acknowledged_time
        pending = replace(
            pending,
            start_time=min(pending.start_time, now),
            acknowledged_time=None if acknowledged is None else min(acknowledged, now),
            turns=tuple(_turn_past(each, now) for each in pending.turns),
        )
    left = (
        replace(each, until=min(each.until, now + _longest(situation, each)))
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
        shortage=shortage
        and replace(shortage, since=min(shortage.since, now), seen=min(shortage.seen, now)),
        trial=trial and replace(trial, until=min(trial.until, now + TRIAL)),
        disruptions=tuple(min(each, now) for each in memory.disruptions if each > now - DAY),
    )


def _longest(situation: Situation, left: Quarantined) -> float:
    """How long a value may stay in quarantine, seconds."""
    of_memory = left.values.fraction is not None
    return QUARANTINE_MOST if of_memory else situation.pause(left.times)


def _turn_past(turn: Turn, now: float) -> Turn:
    return replace(
        turn,
        start_time=min(turn.start_time, now),
        back_time=None if turn.back_time is None else min(turn.back_time, now),
        warm_time=None if turn.warm_time is None else min(turn.warm_time, now),
    )


def keep_alive(situation: Situation, step: Step) -> Step:
    """The step, which wrote nothing, with what keeps the document alive.

    It is renewed at half of its life, with the revision unchanged, and restored where it was
    lost. One that belongs to a policy which was deleted is taken over before it is collected.
    """
    document, written = situation.observation.document, _wanted(situation)
    if written is None or not situation.may_write:
        return step
    asks = situation.memory.pending is not None and situation.memory.pending.restarting
    expired = document is None or document.expires <= situation.now
    if document is not None and carries(document, written):
        # More than its whole life: knobTTL was shortened, or a clock was set back.
        rest, ttl = document.expires - situation.now, written.ttl
        due = not ttl / 2 < rest <= ttl or not document.owned
        # An engine follows a word again once it is renewed, which may be no time for a restart.
        return replace(step, effects=(written,)) if due and not (asks and expired) else step
    # A document that asks for a restart is written where that is decided.
    return step if situation.suspended or asks else _restored(situation, step, written)


def _restored(situation: Situation, step: Step, written: WriteKnobs) -> Step:
    """The lost document again; but what takes it away each time is not fought."""
    now = situation.now
    lately = [
        record.time
        for record in situation.memory.decisions
        if record.reason is Reason.RESTORED and record.time > now - FIGHT_MEMORY
    ]
    if len(lately) >= FIGHT_LIMIT:
        rest = format_span(min(lately) + FIGHT_MEMORY - now)
        message = f"the knob document was lost {len(lately)} times; it is left alone for {rest}"
        return replace(step, holds=(*step.holds, (Reason.FIGHT_DETECTED, message)))
    what = "was deleted" if situation.observation.document is None else "was set back"
    message = f"The knob document {what}: {show(written.values)} is written again."
    label = identity(situation.policy, f"{written.revision}-restored", now)
    record = DecisionRecord(label, now, Reason.RESTORED, message, None, written.values)
    return replace(step, effects=(written,), records=(*step.records, record))


def carries(document: KnobDocument | None, written: WriteKnobs) -> bool:
    """Whether the document holds what was or will be written."""
    return (
        document is not None
        and document.revision == written.revision
        and document.values == written.values
        and dict(document.pods) == dict(written.pods)
    )


def _wanted(situation: Situation) -> WriteKnobs | None:
    """What the document shall hold. Stock LRU that was acknowledged needs no document."""
    memory = situation.memory
    if memory.pending is not None:
        return write(situation, memory.pending)
    if memory.applied is None or memory.applied.values.untouched:
        return None
    ttl = situation.policy.spec.behavior.knob_ttl
    return WriteKnobs(memory.applied.revision, memory.applied.values, ttl)
