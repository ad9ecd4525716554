"""The knob document seen from memory: what it should hold, and when it is written again."""

from __future__ import annotations

from dataclasses import replace

from evictune.api.decision import Applied, Effect, Memory, Pending, WriteKnobs
from evictune.api.knobs import KnobDocument, KnobValues
from evictune.decide.situation import Situation, forget


def reconcile(situation: Situation) -> Memory:
    """Memory brought in line with facts that did not come from us."""
    memory, document = situation.memory, situation.observation.document
    alive = [each for each in memory.quarantine if each.until > situation.now]
    memory = replace(memory, quarantine=tuple(alive))
    if memory.pending is not None or situation.observation.conflict:
        return memory
    in_force = document is not None and document.expires > situation.now
    known = memory.applied.revision if memory.applied else 0
    if document is not None and (in_force or situation.may_write) and document.revision > known:
        # The status was lost or set back: what the document says is what is applied.
        adopted = Applied(document.revision, "adopted", document.values)
        return forget(replace(memory, applied=adopted), document.values)
    if not situation.may_write and not in_force:
        # No longer renewed and now expired: the engines are back at stock LRU.
        return replace(memory, applied=None)
    return memory


def keep_alive(situation: Situation) -> tuple[Effect, ...]:
    """Renew the document at half of its life, with the revision unchanged; restore a lost one."""
    memory, document = situation.memory, situation.observation.document
    wanted, values = _wanted(memory)
    if wanted is None or values is None or not situation.may_write:
        return ()
    ttl = situation.policy.spec.behavior.knob_ttl
    if carries(document, wanted.revision, values):
        due = document is not None and document.expires - situation.now <= ttl / 2
        return (WriteKnobs(wanted.revision, values, ttl),) if due else ()
    if situation.policy.spec.suspend:
        return ()
    return (WriteKnobs(wanted.revision, values, ttl),)


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
