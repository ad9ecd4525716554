"""LFU with dynamic ageing: what was popular once must not stay for ever.

    K = frequency + L,    L = the largest K of all that was evicted

(LFU-DA: Arlitt et al., "Evaluating content management techniques for web proxy caches", 2000;
Dilley and Arlitt, "Improving proxy cache performance", IEEE Internet Computing 1999.) The block
with the smallest K goes, a leaf always (`leaves`). Frequency as in `lfu`.

A block's K is set when the last request that held it lets go of it: it is in use until then. On a
stream of single accesses this is the access, as published. And L never falls: a prefix that becomes
a leaf late may have a K below it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evictune_policies.algorithms.leaves import (
    Leaves,
    admit,
    hold,
    new_leaves,
    rank,
    release,
    take_by_age,
)
from evictune_policies.algorithms.operations import IMPLEMENTATIONS, Operations, Visit, never
from evictune_policies.algorithms.pool import Int32, Pool


class LFUAging(NamedTuple):
    """leaves: by K. uses: per block, its frequency. clock: [L]."""

    leaves: Leaves
    uses: Int32
    clock: NDArray[np.float64]


def new_lfu_aging(capacity_blocks: int) -> LFUAging:
    """The policy's state before the first request."""
    return LFUAging(
        new_leaves(capacity_blocks), np.zeros(capacity_blocks, np.int32), np.zeros(1, np.float64)
    )


def start(state: LFUAging, pool: Pool, block: int, visit: Visit) -> None:
    """The first use."""
    state.uses[block] = 1
    admit(state.leaves, pool, block)


def hit(state: LFUAging, pool: Pool, block: int, visit: Visit) -> None:
    """One more use."""
    state.uses[block] += 1
    hold(state.leaves, block)


def free(state: LFUAging, pool: Pool, block: int, visit: Visit) -> None:
    """A candidate by K."""
    rank(state.leaves, block, state.clock[0] + state.uses[block])
    release(state.leaves, pool, block)


def victim(state: LFUAging, pool: Pool) -> int:
    """The leaf with the smallest K."""
    return take_by_age(state.leaves, pool, state.clock)


IMPLEMENTATIONS[LFUAging] = Operations(start, hit, free, victim, never)
