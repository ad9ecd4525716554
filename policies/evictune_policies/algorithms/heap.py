"""Binary heaps of blocks, smallest key first, over arrays; any block can be taken out of one.

A block belongs to one heap, has one key, and is in its heap or not; it keeps its key while it is
not. A key is (primary, tie). As long as no two keys are equal, which block comes next does not
depend on how blocks are numbered.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evictune_policies.algorithms.pool import NONE, Int32

ROOT = 0


class Heap(NamedTuple):
    """One or several heaps of the same blocks.

    blocks, size: per heap: its blocks, parent before children, and how many they are.
    place: per block: its index in the row of its heap; NONE: it is not in.
    heap: per block: the heap that it belongs to.
    primary, tie: per block: its key.
    """

    blocks: Int32
    size: NDArray[np.int64]
    place: Int32
    heap: NDArray[np.int8]
    primary: NDArray[np.float64]
    tie: NDArray[np.int64]


def new_heap(blocks: int, heaps: int = 1) -> Heap:
    """Empty heaps for blocks 0..blocks-1, all of which belong to heap 0."""
    return Heap(
        blocks=np.full((heaps, blocks), NONE, np.int32),
        size=np.zeros(heaps, np.int64),
        place=np.full(blocks, NONE, np.int32),
        heap=np.zeros(blocks, np.int8),
        primary=np.zeros(blocks, np.float64),
        tie=np.zeros(blocks, np.int64),
    )


def contains(heap: Heap, block: int) -> bool:
    """Whether a block is in its heap."""
    return bool(heap.place[block] != NONE)


def push(heap: Heap, block: int) -> None:
    """Put a block, with the key it has, into the heap it belongs to."""
    row = heap.blocks[heap.heap[block]]
    last = heap.size[heap.heap[block]]
    heap.size[heap.heap[block]] = last + 1
    _rise(heap, row, last, block)


def pop(heap: Heap, which: int = 0) -> int:
    """Take out the block with the smallest key of a heap; NONE if the heap is empty."""
    if heap.size[which] == 0:
        return NONE
    block = int(heap.blocks[which, ROOT])
    remove(heap, block)
    return block


def remove(heap: Heap, block: int) -> None:
    """Take a block out of the heap it is in."""
    which = heap.heap[block]
    row, hole = heap.blocks[which], heap.place[block]
    last = heap.size[which] - 1
    heap.size[which] = last
    heap.place[block] = NONE
    moved = row[last]
    row[last] = NONE
    if moved != block:
        _settle(heap, row, hole, last, moved)


def update(heap: Heap, block: int, primary: float, tie: int) -> None:
    """Give a block another key, whether it is in its heap or not."""
    heap.primary[block] = primary
    heap.tie[block] = tie
    if heap.place[block] != NONE:
        which = heap.heap[block]
        _settle(heap, heap.blocks[which], heap.place[block], heap.size[which], block)


def precedes(heap: Heap, one: int, other: int) -> bool:
    """Whether a block's key is smaller than another's."""
    if heap.primary[one] != heap.primary[other]:
        return bool(heap.primary[one] < heap.primary[other])
    return bool(heap.tie[one] < heap.tie[other])


def _settle(heap: Heap, row: Int32, hole: int, count: int, block: int) -> None:
    """Fill a hole in a row of `count` blocks with a block that may belong above or below it."""
    if hole > ROOT and precedes(heap, block, row[(hole - 1) // 2]):
        _rise(heap, row, hole, block)
    else:
        _sink(heap, row, hole, count, block)


def _rise(heap: Heap, row: Int32, hole: int, block: int) -> None:
    while hole > ROOT:
        above = (hole - 1) // 2
        if not precedes(heap, block, row[above]):
            break
        row[hole] = row[above]
        heap.place[row[hole]] = hole
        hole = above
    row[hole] = block
    heap.place[block] = hole


def _sink(heap: Heap, row: Int32, hole: int, count: int, block: int) -> None:
    below = 2 * hole + 1
    while below < count:
        if below + 1 < count and precedes(heap, row[below + 1], row[below]):
            below += 1
        if not precedes(heap, row[below], block):
            break
        row[hole] = row[below]
        heap.place[row[hole]] = hole
        hole = below
        below = 2 * hole + 1
    row[hole] = block
    heap.place[block] = hole
