"""S3-FIFO, made safe for prefixes: three first-in-first-out queues, and blocks never move on a hit.

A new block joins the small queue (a tenth of the pool). At its end, a block that was hit twice
moves on to the main queue, any other is evicted, and its content remembered in the ghost queue. A
content that is there when it is filled again joins the main queue at once. At the main queue's end
a block that was hit goes back to the start, up to three times; any other is evicted. (Yang et al.,
"FIFO queues are all you need for cache eviction", SOSP 2023.)

The paper's algorithm 1 may evict several objects for one that is missing. The authors' own
implementation (libCacheSim, S3FIFO.c) evicts exactly one, as a pool must, and this is that: what is
promoted may make the main queue longer than its nine tenths, the next eviction is then from there;
the ghost queue holds nine tenths of the pool; and until the first eviction, new blocks join the
main queue once the small one is full.

For chained blocks: what is held or not a leaf is passed over where it stands, its uses untouched
(`leaves`). Hence a queue is a heap of its candidates by their turn in it, not a list to search.
When a queue has no candidate, the other gives. Only a content of which no copy is left becomes a
ghost.
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
from evictune_policies.algorithms.lists import Lists, append, first, new_lists, unlink
from evictune_policies.algorithms.operations import IMPLEMENTATIONS, Operations, Visit, never
from evictune_policies.algorithms.pool import NONE, Int32, Pool

SMALL, MAIN = 0, 1
SMALL_SHARE = 0.1
GHOST_SHARE = 0.9
PROMOTING_USES = 2
MOST_USES = 3


class S3FIFO(NamedTuple):
    """The queues' candidates, and who is where.

    leaves: heap SMALL and heap MAIN, by turn.
    uses: per block: hits since it joined its queue.
    length: blocks in SMALL and in MAIN, held ones too.
    ghosts, ghost_count: a list of contents, oldest first, and [how many].
    evicting: [1 once anything was evicted].
    small_blocks, main_blocks, ghost_limit: how long the queues may be.
    """

    leaves: Leaves
    uses: Int32
    length: NDArray[np.int64]
    ghosts: Lists
    ghost_count: NDArray[np.int64]
    evicting: NDArray[np.int8]
    small_blocks: int
    main_blocks: int
    ghost_limit: int


def new_s3_fifo(capacity_blocks: int, contents: int) -> S3FIFO:
    """The policy's state before the first request."""
    small = int(capacity_blocks * SMALL_SHARE)
    return S3FIFO(
        leaves=new_leaves(capacity_blocks, heaps=2),
        uses=np.zeros(capacity_blocks, np.int32),
        length=np.zeros(2, np.int64),
        ghosts=new_lists(contents),
        ghost_count=np.zeros(1, np.int64),
        evicting=np.zeros(1, np.int8),
        small_blocks=small,
        main_blocks=capacity_blocks - small,
        ghost_limit=int(capacity_blocks * GHOST_SHARE),
    )


def start(state: S3FIFO, pool: Pool, block: int, visit: Visit) -> None:
    """Join the small queue; a ghost the main queue."""
    filling = state.evicting[0] == 0 and state.length[SMALL] >= state.small_blocks
    was_ghost = _forget_ghost(state, pool.content[block])
    _trim_ghosts(state, len(pool.parent))
    _join(state, block, MAIN if was_ghost or filling else SMALL)
    admit(state.leaves, pool, block)


def hit(state: S3FIFO, pool: Pool, block: int, visit: Visit) -> None:
    """Count the use; the block keeps its turn."""
    state.uses[block] = min(state.uses[block] + 1, MOST_USES)
    hold(state.leaves, block)


def free(state: S3FIFO, pool: Pool, block: int, visit: Visit) -> None:
    """A candidate at the turn it has."""
    release(state.leaves, pool, block)


def victim(state: S3FIFO, pool: Pool) -> int:
    """The first candidate that was not used enough to stay; of the other queue if all were."""
    state.evicting[0] = 1
    main_is_due = state.length[MAIN] > state.main_blocks or state.length[SMALL] == 0
    queue = MAIN if main_is_due else SMALL
    while True:
        if state.leaves.heap.size[queue] == 0:
            queue = MAIN if queue == SMALL else SMALL
        block = pop(state.leaves.heap, queue)
        if block == NONE:
            return NONE
        state.length[queue] -= 1
        uses = state.uses[block]
        if uses < (PROMOTING_USES if queue == SMALL else 1):
            break
        _join(state, block, MAIN)
        state.uses[block] = 0 if queue == SMALL else uses - 1
        push(state.leaves.heap, block)
    if queue == SMALL:
        _remember_ghost(state, pool, block)
    depart(state.leaves, pool, block)
    return block


def _join(state: S3FIFO, block: int, queue: int) -> None:
    state.leaves.heap.heap[block] = queue
    state.uses[block] = 0
    state.length[queue] += 1
    rank(state.leaves, block, 0.0)


def _remember_ghost(state: S3FIFO, pool: Pool, block: int) -> None:
    """Append the content that a block is about to lose, unless a copy of it stays."""
    content = pool.content[block]
    if pool.next_copy[pool.resident[content]] == NONE:
        append(state.ghosts, len(pool.parent), content)
        state.ghost_count[0] += 1


def _forget_ghost(state: S3FIFO, content: int) -> bool:
    if state.ghosts.after[content] == content:
        return False
    unlink(state.ghosts, content)
    state.ghost_count[0] -= 1
    return True


def _trim_ghosts(state: S3FIFO, anchor: int) -> None:
    """Down to the limit. Not when a ghost is added: the one now asked for must be seen before."""
    while state.ghost_count[0] > state.ghost_limit:
        _forget_ghost(state, first(state.ghosts, anchor))


IMPLEMENTATIONS[S3FIFO] = Operations(start, hit, free, victim, never)
