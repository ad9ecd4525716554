"""The rule that makes any order of eviction safe for prefixes: only leaves are candidates.

A block may be evicted when nobody holds it and it is a leaf: no block in the pool continues its
chain, or another block holds the same content. Whatever the order, a chain then loses its end
first, and no block is stranded behind a gap. SGLang's radix cache and RAGCache's knowledge tree
(arXiv 2404.12457, section 5.1) do the same. When a leaf goes, the block before it is the next
candidate, if nobody holds it, with the key that it has had since it was freed: old prefixes do not
become young by losing their continuation.

As long as only leaves go, every free block has a leaf behind it that is free as well: a request
holds its whole chain, so whoever holds a continuation holds (a copy of) what it continues. Hence
there is a candidate whenever there is a free cached block.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evictune_policies.algorithms.heap import Heap, contains, new_heap, pop, push, remove, update
from evictune_policies.algorithms.pool import NONE, Pool, is_leaf


class Leaves(NamedTuple):
    """heap: the candidates, by key. turn: a count, so that no two keys are the same."""

    heap: Heap
    turn: NDArray[np.int64]


def new_leaves(capacity_blocks: int, heaps: int = 1) -> Leaves:
    """No candidates yet."""
    return Leaves(new_heap(capacity_blocks, heaps), np.zeros(1, np.int64))


def rank(leaves: Leaves, block: int, primary: float) -> None:
    """Give a block a key; among equal `primary`, blocks ranked earlier come first."""
    update(leaves.heap, block, primary, leaves.turn[0])
    leaves.turn[0] += 1


def admit(leaves: Leaves, pool: Pool, block: int) -> None:
    """A block has been filled. As the second with its content, it makes the first one a leaf."""
    first = pool.resident[pool.content[block]]
    if first != block and pool.next_copy[first] == block:
        _offer(leaves, pool, first)


def hold(leaves: Leaves, block: int) -> None:
    """A request holds a block: it is no candidate."""
    if contains(leaves.heap, block):
        remove(leaves.heap, block)


def release(leaves: Leaves, pool: Pool, block: int) -> None:
    """Nobody holds a block any more: it is a candidate, with the key it has, if it is a leaf."""
    if is_leaf(pool, block):
        push(leaves.heap, block)


def depart(leaves: Leaves, pool: Pool, block: int) -> None:
    """A candidate, already out of the heap, is about to lose its content: who is a leaf then?"""
    content = pool.content[block]
    first = pool.resident[content]
    second = pool.next_copy[first]
    if second == NONE:
        parent = pool.parent[content]
        if parent != NONE and pool.children[parent] == 1:
            _offer(leaves, pool, pool.resident[parent])
    elif pool.children[content] > 0 and pool.next_copy[second] == NONE:
        hold(leaves, second if block == first else first)


def take(leaves: Leaves, pool: Pool) -> int:
    """The candidate with the smallest key, no candidate any more; NONE if there is none."""
    block = pop(leaves.heap)
    if block != NONE:
        depart(leaves, pool, block)
    return block


def take_by_age(leaves: Leaves, pool: Pool, clock: NDArray[np.float64]) -> int:
    """As `take`, and the clock that GreedyDual adds to every new key rises to the one that went."""
    block = take(leaves, pool)
    if block != NONE:
        clock[0] = max(clock[0], leaves.heap.primary[block])
    return block


def _offer(leaves: Leaves, pool: Pool, block: int) -> None:
    """A block has become a leaf: it is a candidate unless somebody holds it."""
    if pool.references[block] == 0 and not contains(leaves.heap, block):
        push(leaves.heap, block)
