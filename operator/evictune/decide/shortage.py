"""How long live requests have held the blocks.

KV usage and waiting requests are values of the moment, and those of a fleet at its limit come and
go: a look at which they are a little lower is no end of the shortage.
"""

from __future__ import annotations

from evictune.api.decision import Shortage
from evictune.api.reasons import Reason
from evictune.decide.situation import Situation

# Not seen for this share of a window, nor at so many looks one after another, it is over.
GAP_WINDOWS = 0.25
GAP_LOOKS = 2


def shortage(situation: Situation) -> Shortage | None:
    """The shortage as of now; None: there is none, or no memory fraction that would end it."""
    if situation.fractions is None:
        return None
    before, regime, now = situation.memory.shortage, situation.memory.regime, situation.now
    gap = max(GAP_WINDOWS * situation.window, GAP_LOOKS * situation.policy.spec.behavior.interval)
    if before is not None and now - before.seen > gap:
        before = None
    if regime is None or regime.name is not Reason.CAPACITY_BOUND:
        return before
    return Shortage(before.since if before else now, now)
