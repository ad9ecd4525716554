"""LFU: least frequently used first; among equals, least recently freed first.

The frequency of a block is how often it has been asked for since it was filled, the filling
included. It is forgotten with the block ("in-cache LFU", Breslau et al., INFOCOM 1999, and
libCacheSim's LFU): memory is bounded by the pool, and a content that comes back begins anew.

For chained blocks: a request asks for all blocks of its prefix, so along a chain the frequency
falls, and LFU would by itself take suffixes first. Ties and copies would break that; leaves only
(`leaves`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from evictune_policies.algorithms.leaves import (
    Leaves,
    admit,
    hold,
    new_leaves,
    rank,
    release,
    take,
)
from evictune_policies.algorithms.operations import IMPLEMENTATIONS, Operations, Visit, never
from evictune_policies.algorithms.pool import Int32, Pool


class LFU(NamedTuple):
    """leaves: by (frequency, order of freeing). uses: per block, its frequency."""

    leaves: Leaves
    uses: Int32


def new_lfu(capacity_blocks: int) -> LFU:
    """The policy's state before the first request."""
    return LFU(new_leaves(capacity_blocks), np.zeros(capacity_blocks, np.int32))


def start(state: LFU, pool: Pool, block: int, visit: Visit) -> None:
    """The first use."""
    state.uses[block] = 1
    admit(state.leaves, pool, block)


def hit(state: LFU, pool: Pool, block: int, visit: Visit) -> None:
    """One more use."""
    state.uses[block] += 1
    hold(state.leaves, block)


def free(state: LFU, pool: Pool, block: int, visit: Visit) -> None:
    """A candidate by its frequency."""
    rank(state.leaves, block, state.uses[block])
    release(state.leaves, pool, block)


def victim(state: LFU, pool: Pool) -> int:
    """The least frequently used leaf."""
    return take(state.leaves, pool)


IMPLEMENTATIONS[LFU] = Operations(start, hit, free, victim, never)
