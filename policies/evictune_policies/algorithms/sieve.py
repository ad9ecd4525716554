"""SIEVE, made safe for prefixes: one queue, one hand, and blocks never move.

A new block joins the queue at its young end; a hit marks it. The hand goes from old to young and
begins again at the oldest: it takes the mark off marked blocks, and evicts the first that has none;
there it stands until the next eviction. (Zhang et al., "SIEVE is simpler than LRU", NSDI 2024.)

For chained blocks: what is held or not a leaf is passed over, its mark untouched (`leaves`). Hence
the hand does not walk. A candidate's key is (the round in which the hand comes to it, its position
in the queue), and the smallest is where the hand gets next. A block that the hand passed over while
it was no candidate has a key that lies behind the hand; that is put right when it comes up.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evictune_policies.algorithms.heap import pop, push
from evictune_policies.algorithms.leaves import (
    Leaves,
    admit,
    depart,
    hold,
    new_leaves,
    rank,
    release,
)
from evictune_policies.algorithms.lists import Lists, append, new_lists, unlink
from evictune_policies.algorithms.operations import IMPLEMENTATIONS, Operations, Visit, never
from evictune_policies.algorithms.pool import NONE, Pool

ROUND, POSITION = 0, 1


class Sieve(NamedTuple):
    """leaves: by (round, position). marks: per block, 1 if it was hit.

    queue: all blocks, oldest first; it tells which is the youngest.
    hand: [its round, the first position in it that is still ahead].
    """

    leaves: Leaves
    marks: NDArray[np.int8]
    queue: Lists
    hand: NDArray[np.int64]


def new_sieve(capacity_blocks: int) -> Sieve:
    """The policy's state before the first request."""
    return Sieve(
        new_leaves(capacity_blocks),
        np.zeros(capacity_blocks, np.int8),
        new_lists(capacity_blocks),
        np.zeros(2, np.int64),
    )


def start(state: Sieve, pool: Pool, block: int, visit: Visit) -> None:
    """Join the queue, ahead of the hand."""
    state.marks[block] = 0
    append(state.queue, len(pool.content), block)
    rank(state.leaves, block, state.hand[ROUND])
    admit(state.leaves, pool, block)


def hit(state: Sieve, pool: Pool, block: int, visit: Visit) -> None:
    """Mark the block; it keeps its position."""
    state.marks[block] = 1
    hold(state.leaves, block)


def free(state: Sieve, pool: Pool, block: int, visit: Visit) -> None:
    """A candidate where it stands."""
    release(state.leaves, pool, block)


def victim(state: Sieve, pool: Pool) -> int:
    """The first candidate without a mark that the hand comes to."""
    heap, hand = state.leaves.heap, state.hand
    while True:
        block = pop(heap)
        if block == NONE:
            return NONE
        position = heap.tie[block]
        due = hand[ROUND] if position >= hand[POSITION] else hand[ROUND] + 1
        if heap.primary[block] < due:  # passed over while it was no candidate
            heap.primary[block] = due
            push(heap, block)
            continue
        hand[ROUND] = due
        hand[POSITION] = position + 1
        if state.marks[block] == 0:
            break
        state.marks[block] = 0
        heap.primary[block] = due + 1
        push(heap, block)
    if state.queue.before[len(pool.content)] == block:  # the youngest: what joins now is not next
        hand[ROUND] += 1
        hand[POSITION] = 0
    unlink(state.queue, block)
    depart(state.leaves, pool, block)
    return block


IMPLEMENTATIONS[Sieve] = Operations(start, hit, free, victim, never)
