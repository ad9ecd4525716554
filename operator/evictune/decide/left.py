"""Memory fractions that were left: which, why, and for how long.

An engine that did not start or died says so under any traffic, and finding it out costs an engine:
such a fraction stays away for the longest time there is. One that was merely no better stays away
as an order of eviction does.
"""

from __future__ import annotations

from dataclasses import replace

from evictune.api.decision import Memory, Quarantined
from evictune.api.knobs import KnobValues
from evictune.api.reasons import Reason
from evictune.decide.situation import QUARANTINE_MOST, Situation, remember
from evictune.decide.traffic import alike


def leave(situation: Situation, memory: Memory, values: KnobValues, reason: Reason) -> Memory:
    """Memory with the fraction of these values left for this reason."""
    if values.fraction is None:
        return memory
    key = KnobValues(None, fraction=values.fraction)
    died = reason is Reason.ENGINE_FAILED
    traffic = "" if died else situation.fingerprint
    before = [
        each.times
        for each in memory.quarantine
        if each.values == key and alike(each.fingerprint, traffic)
    ]
    times = max(before, default=0) + 1
    pause = QUARANTINE_MOST if died else situation.pause(times)
    return remember(memory, Quarantined(key, traffic, situation.now + pause, reason, times=times))


def reopened(memory: Memory, values: KnobValues, now: float) -> Memory:
    """Memory after a fraction was kept: it is not left any more, and orders are tried anew.

    What did not fit into fewer blocks may fit into more, and the other way round.
    """
    kept = tuple(
        replace(each, until=min(each.until, now))
        if each.values.fraction in (None, values.fraction)
        else each
        for each in memory.quarantine
    )
    return replace(memory, quarantine=kept)
