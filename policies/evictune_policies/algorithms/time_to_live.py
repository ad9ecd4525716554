"""Time to live: a block that nobody used for so long may not be hit any more.

What providers of models sell: a cached prefix lives five minutes, or an hour, and each use starts
the time anew (https://docs.anthropic.com/en/docs/build-with-claude/prompt-caching, "Cache
lifetime"). When the pool is full before that, the order is that of `prefix_lru`.

A use lasts until the request lets go of the block, and the time begins then: providers only say
"used". Blocks of one chain are used together, so that a chain loses its end no later than its head.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evictune_policies.algorithms.lists import Lists, append, first, new_lists, unlink
from evictune_policies.algorithms.operations import IMPLEMENTATIONS, Operations, Visit
from evictune_policies.algorithms.pool import NONE, Pool


class TimeToLive(NamedTuple):
    """queue: the blocks that nobody holds, first to go first.

    freed: per block of the queue: when it was freed, seconds.
    """

    queue: Lists
    freed: NDArray[np.float64]
    seconds: float


def new_time_to_live(capacity_blocks: int, seconds: float) -> TimeToLive:
    """The policy's state before the first request."""
    return TimeToLive(new_lists(capacity_blocks), np.zeros(capacity_blocks), float(seconds))


def start(state: TimeToLive, pool: Pool, block: int, visit: Visit) -> None:
    """Nothing: time runs from the end of a use."""


def hit(state: TimeToLive, pool: Pool, block: int, visit: Visit) -> None:
    """A block that is held again leaves the queue."""
    if pool.references[block] == 0:
        unlink(state.queue, block)


def free(state: TimeToLive, pool: Pool, block: int, visit: Visit) -> None:
    """Join the queue at its end."""
    state.freed[block] = visit.now
    append(state.queue, len(pool.content), block)


def victim(state: TimeToLive, pool: Pool) -> int:
    """The head of the queue."""
    block = first(state.queue, len(pool.content))
    unlink(state.queue, block)
    return block


def expired(state: TimeToLive, pool: Pool, now: float) -> int:
    """The head of the queue, if its time is over."""
    block = first(state.queue, len(pool.content))
    if block == NONE or now - state.freed[block] < state.seconds:
        return NONE
    unlink(state.queue, block)
    return block


IMPLEMENTATIONS[TimeToLive] = Operations(start, hit, free, victim, expired)
