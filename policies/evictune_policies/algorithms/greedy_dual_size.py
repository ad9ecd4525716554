"""GreedyDual-Size: what is cheap to compute again goes first, and all that is unused ages.

    H = L + cost / size,    L = the largest H of all that was evicted

(Cao and Irani, "Cost-aware WWW proxy caching algorithms", USITS 1997; GreedyDual: Young 1994.) The
block with the smallest H goes, a leaf always (`leaves`).

For chained blocks: every block has the same size, so size is 1. Its cost is the time to compute it
alone after the blocks before it: nothing else is lost with a leaf. It grows with depth where the
cost model has a quadratic part; where it has none, all H are alike and this is LRU. H is set when
the last request that held the block lets go of it: it is in use until then.
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
from evictune_policies.algorithms.pool import Pool
from evictune_policies.algorithms.prefill import Prefill, block_seconds


class GreedyDualSize(NamedTuple):
    """leaves: by H. clock: [L]. prefill: the cost model."""

    leaves: Leaves
    clock: NDArray[np.float64]
    prefill: Prefill


def new_greedy_dual_size(capacity_blocks: int, prefill: Prefill) -> GreedyDualSize:
    """The policy's state before the first request."""
    return GreedyDualSize(new_leaves(capacity_blocks), np.zeros(1, np.float64), prefill)


def start(state: GreedyDualSize, pool: Pool, block: int, visit: Visit) -> None:
    """Nothing to note but the block itself."""
    admit(state.leaves, pool, block)


def hit(state: GreedyDualSize, pool: Pool, block: int, visit: Visit) -> None:
    """It is held; H is set anew when it is freed."""
    hold(state.leaves, block)


def free(state: GreedyDualSize, pool: Pool, block: int, visit: Visit) -> None:
    """A candidate by H."""
    cost = block_seconds(state.prefill, pool.depth[pool.content[block]])
    rank(state.leaves, block, state.clock[0] + cost)
    release(state.leaves, pool, block)


def victim(state: GreedyDualSize, pool: Pool) -> int:
    """The leaf with the smallest H."""
    return take_by_age(state.leaves, pool, state.clock)


IMPLEMENTATIONS[GreedyDualSize] = Operations(start, hit, free, victim, never)
