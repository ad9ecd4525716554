"""GDSF, GreedyDual-Size with frequency.

    priority = clock + frequency * cost / size,    clock = the largest priority evicted

(Cherkasova, "Improving WWW proxies performance with Greedy-Dual-Size-Frequency caching policy", HP
Laboratories HPL-98-69, 1998.) The block with the smallest priority goes, a leaf always (`leaves`).

Frequency as in `lfu`; size, cost and the moment at which priority is set as in `greedy_dual_size`.
Where the cost model has no quadratic part all blocks cost the same, and this is LFU with dynamic
ageing.
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
from evictune_policies.algorithms.prefill import Prefill, block_seconds


class GDSF(NamedTuple):
    """leaves: by priority. uses: per block, its frequency. clock: one number."""

    leaves: Leaves
    uses: Int32
    clock: NDArray[np.float64]
    prefill: Prefill


def new_gdsf(capacity_blocks: int, prefill: Prefill) -> GDSF:
    """The policy's state before the first request."""
    return GDSF(
        new_leaves(capacity_blocks),
        np.zeros(capacity_blocks, np.int32),
        np.zeros(1, np.float64),
        prefill,
    )


def start(state: GDSF, pool: Pool, block: int, visit: Visit) -> None:
    """The first use."""
    state.uses[block] = 1
    admit(state.leaves, pool, block)


def hit(state: GDSF, pool: Pool, block: int, visit: Visit) -> None:
    """One more use."""
    state.uses[block] += 1
    hold(state.leaves, block)


def free(state: GDSF, pool: Pool, block: int, visit: Visit) -> None:
    """A candidate by its priority."""
    cost = block_seconds(state.prefill, pool.depth[pool.content[block]])
    rank(state.leaves, block, state.clock[0] + state.uses[block] * cost)
    release(state.leaves, pool, block)


def victim(state: GDSF, pool: Pool) -> int:
    """The leaf with the smallest priority."""
    return take_by_age(state.leaves, pool, state.clock)


IMPLEMENTATIONS[GDSF] = Operations(start, hit, free, victim, never)
