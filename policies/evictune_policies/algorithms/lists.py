"""Doubly linked lists of blocks, several over one pair of arrays.

A pool of n blocks with k lists takes arrays of n + k: place n + i is the anchor of list i, before
its first and after its last block. A block is in one list at most; unlinked, it points at itself.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from evictune_policies.algorithms.pool import NONE, Int32


class Lists(NamedTuple):
    """before and after: per block and anchor."""

    before: Int32
    after: Int32


def new_lists(blocks: int, lists: int = 1) -> Lists:
    """Empty lists over blocks 0..blocks-1; list i's anchor is blocks + i."""
    itself = np.arange(blocks + lists, dtype=np.int32)
    return Lists(itself, itself.copy())


def append(lists: Lists, anchor: int, block: int) -> None:
    """Put a block at the end of a list."""
    last = lists.before[anchor]
    lists.after[last] = block
    lists.before[block] = last
    lists.after[block] = anchor
    lists.before[anchor] = block


def unlink(lists: Lists, block: int) -> None:
    """Take a block out of the list it is in."""
    before, after = lists.before[block], lists.after[block]
    lists.after[before] = after
    lists.before[after] = before
    lists.before[block] = block
    lists.after[block] = block


def first(lists: Lists, anchor: int) -> int:
    """The first block of a list; NONE if it is empty."""
    block = lists.after[anchor]
    if block == anchor:
        return NONE
    return int(block)
