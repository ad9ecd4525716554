"""Flat LRU: the textbook's, blind to chains.

Blocks are independent of each other, and a request uses its blocks in the order of its tokens, so
that the head of a chain is the first to go. It strands what follows: those blocks stay in the pool
and cannot be hit. That is why engines free suffix first (`prefix_lru`). On single blocks this is
the LRU of the caching literature, and what libCacheSim's LRU does.
"""

from __future__ import annotations

from evictune_policies.algorithms.prefix_lru import PrefixLRU, new_prefix_lru


def new_lru(capacity_blocks: int) -> PrefixLRU:
    """The same queue as vLLM's; what differs is the order in which a request frees its blocks."""
    return new_prefix_lru(capacity_blocks)
