"""The operations of every eviction policy.

A policy is one file: a NamedTuple of arrays that is its state, and a function for each operation.
It sees cached blocks only: a block without content is always taken first, and a running request's
blocks are never asked for.

    start(state, pool, block, visit)   the block has just been filled by a request that runs
    hit(state, pool, block, visit)     a request found the block; `pool.references` is still what
                                       it was: 0 means that the block could have been evicted
    free(state, pool, block, visit)    the last request that held the block let go of it
    leave(state, pool, block, visit)   another request did: somebody still holds the block
    victim(state, pool)                choose a block that nobody holds, and forget it
    expired(state, pool, now)          a block that may not be hit any more, forgotten; or NONE

The replay compiles the functions; which one runs follows from the state's type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from evictune_policies.algorithms.pool import NONE, Pool


class Visit(NamedTuple):
    """What a request tells the policy about itself at one operation. Numbers only.

    now: seconds since the trace began.
    step: grows with every request that starts and every request that ends; never repeats.
    request: its index in the trace.
    tokens: prompt and output so far; when it has finished, its whole length H.
    finished: 1 if it ended; 0 if it runs, or was preempted and will come back.
    """

    now: float
    step: int
    request: int
    tokens: int
    finished: int


def stays(state: Any, pool: Pool, block: int, visit: Visit) -> None:
    """`leave` of a policy to which it does not matter."""


class Operations(NamedTuple):
    """One policy's functions."""

    start: Callable[[Any, Pool, int, Visit], None]
    hit: Callable[[Any, Pool, int, Visit], None]
    free: Callable[[Any, Pool, int, Visit], None]
    victim: Callable[[Any, Pool], int]
    expired: Callable[[Any, Pool, float], int]
    leave: Callable[[Any, Pool, int, Visit], None] = stays


# By the type of a policy's state. Each policy's file adds its own.
IMPLEMENTATIONS: dict[type, Operations] = {}


def start(state: Any, pool: Pool, block: int, visit: Visit) -> None:
    """Call the policy's own `start`."""
    IMPLEMENTATIONS[type(state)].start(state, pool, block, visit)


def hit(state: Any, pool: Pool, block: int, visit: Visit) -> None:
    """Call the policy's own `hit`."""
    IMPLEMENTATIONS[type(state)].hit(state, pool, block, visit)


def free(state: Any, pool: Pool, block: int, visit: Visit) -> None:
    """Call the policy's own `free`."""
    IMPLEMENTATIONS[type(state)].free(state, pool, block, visit)


def leave(state: Any, pool: Pool, block: int, visit: Visit) -> None:
    """Call the policy's own `leave`."""
    IMPLEMENTATIONS[type(state)].leave(state, pool, block, visit)


def victim(state: Any, pool: Pool) -> int:
    """Call the policy's own `victim`."""
    return IMPLEMENTATIONS[type(state)].victim(state, pool)


def expired(state: Any, pool: Pool, now: float) -> int:
    """Call the policy's own `expired`."""
    return IMPLEMENTATIONS[type(state)].expired(state, pool, now)


def never(state: Any, pool: Pool, now: float) -> int:
    """`expired` of a policy under which a cached block stays good."""
    return NONE
