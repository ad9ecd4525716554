"""The simulator's own part of a pool: blocks without content, and how old blocks become.

Plain functions, compiled like those of `algorithms`. A block without content (never used, or it
held a partial block or an output that no hash stands for) is *blank*. Blanks are always taken
before any cached block, as vLLM does by putting them at the head of its free queue.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evictune_policies.algorithms.operations import expired, victim
from evictune_policies.algorithms.pool import NONE, Int32, Pool, clear

AGE_BINS = 32
# Seconds: bin 0 is below the first, bin i from bound i - 1 on, the last from 2**20 s (12 days) on.
AGE_BOUNDS = 2.0 ** np.arange(-10, AGE_BINS - 11)


class Places(NamedTuple):
    """blank, blanks: a stack of the blank blocks, and [how many].

    released: per cached block: when a request last let go of it, seconds.
    hit_age, eviction_age: blocks per bin of `AGE_BOUNDS`.
    """

    blank: Int32
    blanks: Int32
    released: NDArray[np.float64]
    hit_age: NDArray[np.int64]
    eviction_age: NDArray[np.int64]


def new_places(capacity_blocks: int) -> Places:
    """All blocks are blank, and taken in the order of their numbers."""
    return Places(
        blank=np.arange(capacity_blocks, dtype=np.int32)[::-1].copy(),
        blanks=np.array([capacity_blocks], np.int32),
        released=np.zeros(capacity_blocks),
        hit_age=np.zeros(AGE_BINS, np.int64),
        eviction_age=np.zeros(AGE_BINS, np.int64),
    )


def age_bin(seconds: float) -> int:
    """The bin of `AGE_BOUNDS` that an age belongs to."""
    if seconds < 2.0**-10:
        return 0
    return min(math.frexp(seconds)[1] + 10, AGE_BINS - 1)


def put_blank(places: Places, block: int) -> None:
    """A block that holds nothing is free."""
    count = places.blanks[0]
    places.blank[count] = block
    places.blanks[0] = count + 1


def take(state: object, pool: Pool, places: Places, now: float) -> int:
    """A block to fill: a blank one, else one that is evicted for it."""
    count = places.blanks[0]
    if count > 0:
        places.blanks[0] = count - 1
        return int(places.blank[count - 1])
    block = victim(state, pool)
    places.eviction_age[age_bin(now - places.released[block])] += 1
    clear(pool, block)
    return block


def drop_expired(state: object, pool: Pool, places: Places, now: float) -> None:
    """Blank the blocks that may not be hit any more."""
    block = expired(state, pool, now)
    while block != NONE:
        clear(pool, block)
        put_blank(places, block)
        block = expired(state, pool, now)


def longest_prefix(pool: Pool, contents: Int32, begin: int, limit: int) -> int:
    """How many of contents[begin:begin + limit] are found before the first that is not."""
    count = 0
    while count < limit and pool.resident[contents[begin + count]] != NONE:
        count += 1
    return count
