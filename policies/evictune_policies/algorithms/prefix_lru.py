"""vLLM's own order: least recently freed first, and of one request its last block first.

A request frees its blocks suffix first, so a chain loses its end before its head and what is left
can still be hit. (vLLM, v1/core/kv_cache_utils.py: FreeKVCacheBlockQueue;
docs/design/prefix_caching.md, "Free blocks".)
"""

from __future__ import annotations

from typing import NamedTuple

from evictune_policies.algorithms.lists import Lists, append, first, new_lists, unlink
from evictune_policies.algorithms.operations import IMPLEMENTATIONS, Operations, Visit, never
from evictune_policies.algorithms.pool import Pool


class PrefixLRU(NamedTuple):
    """queue: the blocks that nobody holds, first to go first."""

    queue: Lists


def new_prefix_lru(capacity_blocks: int) -> PrefixLRU:
    """The policy's state before the first request."""
    return PrefixLRU(new_lists(capacity_blocks))


def start(state: PrefixLRU, pool: Pool, block: int, visit: Visit) -> None:
    """Nothing: the order is that of freeing."""


def hit(state: PrefixLRU, pool: Pool, block: int, visit: Visit) -> None:
    """A block that is held again leaves the queue."""
    if pool.references[block] == 0:
        unlink(state.queue, block)


def free(state: PrefixLRU, pool: Pool, block: int, visit: Visit) -> None:
    """Join the queue at its end."""
    append(state.queue, len(pool.content), block)


def victim(state: PrefixLRU, pool: Pool) -> int:
    """The head of the queue."""
    block = first(state.queue, len(pool.content))
    unlink(state.queue, block)
    return block


IMPLEMENTATIONS[PrefixLRU] = Operations(start, hit, free, victim, never)
