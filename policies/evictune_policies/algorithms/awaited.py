"""Blocks of preempted requests: they come back for them, and how long they get is not known yet.

At most `SLOTS` preempted requests are told apart at a time; blocks are not kept for any further
ones. A request that was preempted and never ends keeps its slot.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evictune_policies.algorithms.pool import NONE, Int32

SLOTS = 62


class Awaited(NamedTuple):
    """Who waits for what. While nobody waits, which is nearly always, only `waiting` is looked at.

    waiting: [how many slots are taken].
    requests: per slot: the preempted request; NONE: the slot is free.
    slots: per block: a set of slots, one bit each.
    """

    waiting: Int32
    requests: NDArray[np.int64]
    slots: NDArray[np.int64]


def new_awaited(capacity_blocks: int) -> Awaited:
    """Nobody was preempted."""
    return Awaited(
        waiting=np.zeros(1, np.int32),
        requests=np.full(SLOTS, NONE, np.int64),
        slots=np.zeros(capacity_blocks, np.int64),
    )


def slot_of(awaited: Awaited, request: int) -> int:
    """The slot of a preempted request (or, for NONE, a free slot); NONE: there is none."""
    for slot in range(SLOTS):
        if awaited.requests[slot] == request:
            return slot
    return NONE


def expect(awaited: Awaited, block: int, request: int) -> None:
    """A preempted request will come back for the block."""
    slot = slot_of(awaited, request)
    if slot == NONE:
        slot = slot_of(awaited, NONE)
        if slot == NONE:
            return
        awaited.requests[slot] = request
        awaited.waiting[0] += 1
    awaited.slots[block] |= 1 << slot


def forget(awaited: Awaited, block: int) -> None:
    """The block is filled anew: nobody comes back for it."""
    if awaited.waiting[0] > 0:
        awaited.slots[block] = 0


def is_awaited(awaited: Awaited, block: int) -> bool:
    """Whether a preempted request will come back for the block."""
    return bool(awaited.waiting[0] > 0 and awaited.slots[block] != 0)


def settle(awaited: Awaited, request: int, known: Int32, value: int) -> None:
    """A request has ended: of the blocks that it was awaited for, raise `known` to `value`."""
    if awaited.waiting[0] == 0:
        return
    slot = slot_of(awaited, request)
    if slot == NONE:
        return
    bit = 1 << slot
    for block in range(len(awaited.slots)):
        if awaited.slots[block] & bit:
            awaited.slots[block] &= ~bit
            known[block] = max(known[block], value)
    awaited.requests[slot] = NONE
    awaited.waiting[0] -= 1
