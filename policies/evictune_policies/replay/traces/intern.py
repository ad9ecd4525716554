"""Block hashes to dense numbers: 0, 1, 2, ... in order of first appearance.

Hashes have 64 bits and are compared in full. `numbers` first groups them by their upper bits, so
that the table of one group fits into the processor's cache: a radix hash join's partitioning
(Manegold, Boncz, Kersten: Optimizing Main-Memory Join on Modern Hardware, TKDE 2002). It takes 20
bytes of scratch memory for each hash, and at most 48 for each of one group's.

The loops are plain functions over NumPy arrays, like those of `algorithms`: for long inputs they
are compiled, short ones they go through as they stand, since compiling takes seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evictune_policies.algorithms.pool import NONE

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
UInt64 = NDArray[np.uint64]

WORTH_COMPILING = 1 << 14  # steps of a loop, about a hundredth of a second as they stand
_GROUP = 1 << 14  # hashes: a table of 32,768 slots of 12 bytes
_MAX_GROUP_BITS = 12  # more groups than this, and writing to all in turn misses the cache
_BATCH = 1 << 16


def worth(function: Callable[..., Any], steps: int) -> Callable[..., Any]:
    """The function, compiled if it has many steps to go."""
    return function if steps < WORTH_COMPILING else _compiled(function)


@cache
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    from evictune_policies.replay.compiled import compiled  # numba takes long to import

    return compiled(function, allocates=True)


def mixed(hashes: UInt64) -> UInt64:
    """Spread hashes, or ids that merely count up, over all 64 bits; one to one.

    The finalizer of SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators,
    OOPSLA 2014), batch by batch to stay in the cache; in arrays overflow is silent.
    """
    value = hashes.copy()
    for begin in range(0, len(value), _BATCH):
        part = value[begin : begin + _BATCH]
        part ^= part >> np.uint64(30)
        part *= np.uint64(0xBF58476D1CE4E5B9)
        part ^= part >> np.uint64(27)
        part *= np.uint64(0x94D049BB133111EB)
        part ^= part >> np.uint64(31)
    return value


def numbers(hashes: UInt64) -> tuple[Int32, int]:
    """Each hash's dense number, in order of first appearance, and how many there are."""
    count = len(hashes)
    bits = 0
    while bits < _MAX_GROUP_BITS and count >> bits > _GROUP:
        bits += 1
    keys = mixed(hashes).view(np.int64)
    grouped = np.empty(count, np.int64)
    index = np.empty(count, np.int32)
    ends = np.zeros((1 << bits) + 1, np.int64)
    result = np.empty(count, np.int32)
    worth(_group, count)(keys, 63 - bits, grouped, index, ends)
    worth(_find_first, count)(grouped, index, ends, result)
    return result, int(worth(_number, count)(result))


def _group(keys: Int64, shift: int, grouped: Int64, index: Int32, ends: Int64) -> None:
    """Stable counting sort by the bits from `shift` on: group g is [ends[g], ends[g + 1])."""
    groups = len(ends) - 1
    for key in keys:
        ends[((key >> shift) & (groups - 1)) + 1] += 1
    for group in range(groups):
        ends[group + 1] += ends[group]
    place = ends.copy()
    for position in range(len(keys)):
        group = (keys[position] >> shift) & (groups - 1)
        grouped[place[group]] = keys[position]
        index[place[group]] = position
        place[group] += 1


def _find_first(grouped: Int64, index: Int32, ends: Int64, first: Int32) -> None:
    """For each key the position where it appears first; open addressing, linear probing."""
    slots = 2
    while slots < 2 * np.max(np.diff(ends)):
        slots *= 2
    key_of = np.empty(slots, np.int64)
    first_of = np.empty(slots, np.int32)
    for group in range(len(ends) - 1):
        slots = 2
        while slots < 2 * (ends[group + 1] - ends[group]):
            slots *= 2
        first_of[:slots] = NONE
        for position in range(ends[group], ends[group + 1]):
            key = grouped[position]
            slot = key & (slots - 1)
            while first_of[slot] != NONE and key_of[slot] != key:
                slot = (slot + 1) & (slots - 1)
            if first_of[slot] == NONE:
                key_of[slot] = key
                first_of[slot] = index[position]
            first[index[position]] = first_of[slot]


def _number(first: Int32) -> int:
    """Replace first positions by numbers; returns how many."""
    distinct = 0
    for position in range(len(first)):
        if first[position] == position:
            first[position] = distinct
            distinct += 1
        else:
            first[position] = first[first[position]]
    return distinct


def chained(starts: Int64, ids: UInt64, last_tokens: Int64) -> UInt64:
    """Hashes of (the hash before in the chain, the id): equal only if all before are equal too.

    starts: chain r is ids[starts[r]:starts[r + 1]]. last_tokens: per chain, tokens of its last
    block if that is partial, else 0: an id that stands for a part of a block here and for a whole
    one there means two contents. Goes through the chains level by level, all chains at once.
    """
    counts = np.diff(starts)
    longest_first = np.argsort(-counts, kind="stable")
    begins, lengths = starts[:-1][longest_first], counts[longest_first]
    marks = mixed(last_tokens.astype(np.uint64))[longest_first]  # mixed(0) is 0
    result = np.empty(len(ids), np.uint64)
    before = np.full(len(begins), 0x9E3779B97F4A7C15, np.uint64)
    for level in range(lengths[0] if len(lengths) else 0):
        going = int(np.searchsorted(-lengths, -level, side="left"))  # longer than `level`
        before = before[:going]
        before *= np.uint64(0xD1342543DE82EF95)
        before += ids[begins[:going] + level]
        ending = int(np.searchsorted(-lengths, -(level + 1), side="left"))
        before[ending:] ^= marks[ending:going]
        before = mixed(before)
        result[begins[:going] + level] = before
    return result
