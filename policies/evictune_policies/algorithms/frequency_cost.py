"""Frequency x compute cost, as proposed for vLLM: the least retention benefit goes first.

    benefit = uses / max(1 s, age) * tokens ** 2

(vLLM issue #23641 and pull request #27539, which was not merged.) `age` is the time since the block
was filled, and filling is its first use (the issue: "first generate time and total access count").
The exponent 2 is the default of both; so is the least age of a second in the pull request, which
also settles the moment: the benefit is computed once, when the block is freed.

For chained blocks the two differ. In the issue `tokens` is the size of the cached prefix; in the
pull request every block counts `block_size` tokens, so cost plays no part and the name is idle. We
follow the issue: a block stands for the prefix that ends with it, (depth + 1) blocks. And leaves
only (`leaves`): by itself the benefit grows with depth, and would evict a chain's head first.
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
LEAST_AGE_SECONDS = 1.0


class FrequencyCost(NamedTuple):
    """leaves: by benefit. uses, filled: per block: how often used; since when, seconds."""

    leaves: Leaves
    uses: Int32
    filled: NDArray[np.float64]
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
    """The first use."""
    state.uses[block] = 1
    state.filled[block] = visit.now
    admit(state.leaves, pool, block)


def hit(state: FrequencyCost, pool: Pool, block: int, visit: Visit) -> None:
    """One more use."""
    state.uses[block] += 1
    hold(state.leaves, block)


def free(state: FrequencyCost, pool: Pool, block: int, visit: Visit) -> None:
    """A candidate by its benefit."""
    age = max(LEAST_AGE_SECONDS, visit.now - state.filled[block])
    tokens = (pool.depth[pool.content[block]] + 1.0) * state.block_tokens
    rank(state.leaves, block, state.uses[block] / age * tokens**EXPONENT)
    release(state.leaves, pool, block)


def victim(state: FrequencyCost, pool: Pool) -> int:
    """The leaf with the least benefit."""
    return take(state.leaves, pool)


IMPLEMENTATIONS[FrequencyCost] = Operations(start, hit, free, victim, never)
