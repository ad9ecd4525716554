"""Belady's rule on prefixes: the block whose next use is furthest away goes first.

(L. A. Belady, "A study of replacement algorithms for a virtual-storage computer", IBM Systems
Journal 5, 1966. For KV blocks: arXiv 2510.15152, section 2 and appendices B and D.)

Why this is the most hits that any policy can have, one request at a time. A request ends with its
whole chain in the pool, whatever it hit; of the blocks before it, so many stay as there is room
beside it. So a block is kept over an interval, from a request that has it to the next that has it,
and takes a place beside every request between the two. A kept interval is a hit if the blocks
before it in the chain are hit too. Leave that condition aside: to keep as many intervals as
possible where so many have room is solved by dropping, whenever there are too many, the one that
ends last. And the condition then holds by itself: a block's parent comes again no later than the
block; where both come again with the same request, the deeper one is dropped first.

Two things follow that an online policy would not do. A block whose next request computes it anew in
any case (the block of a prompt's last token) is worth nothing until then. And blocks that are not
leaves may go, if their next request does not count on them: it brings them back before the blocks
below are wanted. So there is no restriction to leaves.

With requests that overlap it is a guess, no longer a bound: what a request finds then depends on
when others end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evictune_policies.algorithms.future import eviction_keys
from evictune_policies.algorithms.heap import Heap, new_heap, pop, push, remove, update
from evictune_policies.algorithms.operations import IMPLEMENTATIONS, Operations, Visit, never
from evictune_policies.algorithms.pool import NONE, Pool

if TYPE_CHECKING:
    from evictune_policies.algorithms.catalog import Setting

Int64 = NDArray[np.int64]

USELESS = -np.inf  # smaller than every key


class Belady(NamedTuple):
    """starts: per request its first entry. key_after: per entry, `future.eviction_keys`.

    queue: the blocks that nobody holds, by that key as of the last request that held them.
    """

    starts: Int64
    key_after: Int64
    queue: Heap


def new_belady(setting: Setting, xi_tokens: int = 0) -> Belady:
    """The policy's state before the first request. With xi: tail-optimal (`tail_belady`)."""
    return Belady(
        setting.chains.starts,
        eviction_keys(setting.chains, setting.block_tokens, xi_tokens),
        new_heap(setting.capacity_blocks),
    )


def start(state: Belady, pool: Pool, block: int, visit: Visit) -> None:
    """The block is worth its content's next use; other blocks with this content nothing."""
    content = pool.content[block]
    entry = state.starts[visit.request] + pool.depth[content]
    update(state.queue, block, -float(state.key_after[entry]), content)
    copy = pool.resident[content]
    while copy != NONE:
        if copy != block and state.queue.primary[copy] != USELESS:
            update(state.queue, copy, USELESS, content)
        copy = pool.next_copy[copy]


def hit(state: Belady, pool: Pool, block: int, visit: Visit) -> None:
    """As when it is filled."""
    if pool.references[block] == 0:
        remove(state.queue, block)
    start(state, pool, block, visit)


def free(state: Belady, pool: Pool, block: int, visit: Visit) -> None:
    """A request that was preempted comes back for its blocks before any other."""
    if not visit.finished and state.queue.primary[block] != USELESS:
        update(state.queue, block, -float(state.starts[visit.request]), pool.content[block])
    push(state.queue, block)


def victim(state: Belady, pool: Pool) -> int:
    """The block with the highest key."""
    return pop(state.queue)


IMPLEMENTATIONS[Belady] = Operations(start, hit, free, victim, never)
