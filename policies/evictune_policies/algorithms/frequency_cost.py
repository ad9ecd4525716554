"""Frequency x compute cost, as proposed for vLLM: the least retention benefit goes first.

    benefit = hits / max(1 s, time since the first hit) * tokens ** 2

(vLLM issue #23641 and its pull request #27539, which was closed unmerged.) Where the two differ:

- What is counted. The issue counts accesses since a prefix was generated, the pull request hits
  since the first hit, and a block that was never hit is worth nothing. We follow the pull request:
  the benefit is computed once, when a block is freed (in both a later time would change the order),
  and counted from its generation, a block just filled, one use in no time, would outrank all.
- `tokens`. In the issue it is the size of the cached prefix, in the pull request every block counts
  `block_size`: cost plays no part. We follow the issue, whose name the policy bears: a block stands
  for the prefix that ends with it, (depth + 1) blocks.

The exponent, and the least time of a second, are the pull request's defaults. It keeps a block's
count when other content moves in, an oversight that we do not follow. Leaves only (`leaves`): by
itself the benefit grows with depth, and would evict a chain's head first. Among equals, what was
freed first goes first.
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
    take,
)
from evictune_policies.algorithms.operations import IMPLEMENTATIONS, Operations, Visit, never
from evictune_policies.algorithms.pool import Int32, Pool

EXPONENT = 2.0
LEAST_SECONDS = 1.0


class FrequencyCost(NamedTuple):
    """leaves: by benefit. hits, since: per block: how often it was hit, and when first, seconds."""

    leaves: Leaves
    hits: Int32
    since: NDArray[np.float64]
    block_tokens: int


def new_frequency_cost(capacity_blocks: int, block_tokens: int) -> FrequencyCost:
    """The policy's state before the first request."""
    return FrequencyCost(
        new_leaves(capacity_blocks),
        np.zeros(capacity_blocks, np.int32),
        np.zeros(capacity_blocks, np.float64),
        block_tokens,
    )


def start(state: FrequencyCost, pool: Pool, block: int, visit: Visit) -> None:
    """Nothing in its favour yet."""
    state.hits[block] = 0
    admit(state.leaves, pool, block)


def hit(state: FrequencyCost, pool: Pool, block: int, visit: Visit) -> None:
    """One more; time runs from the first."""
    if state.hits[block] == 0:
        state.since[block] = visit.now
    state.hits[block] += 1
    hold(state.leaves, block)


def free(state: FrequencyCost, pool: Pool, block: int, visit: Visit) -> None:
    """A candidate by its benefit."""
    seconds = max(LEAST_SECONDS, visit.now - state.since[block])
    tokens = (pool.depth[pool.content[block]] + 1.0) * state.block_tokens
    rank(state.leaves, block, state.hits[block] / seconds * tokens**EXPONENT)
    release(state.leaves, pool, block)


def victim(state: FrequencyCost, pool: Pool) -> int:
    """The leaf with the least benefit."""
    return take(state.leaves, pool)


IMPLEMENTATIONS[FrequencyCost] = Operations(start, hit, free, victim, never)
