"""T-LRU: what cannot make the next turn late is evicted first.

Tail-optimized LRU (https://arxiv.org/abs/2510.15152, section 3, policy 1; vLLM RFC #37823). A
conversation of H tokens comes back with about H + q_hat; with B = max(0, H + q_hat - xi) of them
cached, at most xi have to be computed. Blocks that start at token B or later are *TEL-safe*: they
are evicted before all others. Within both regions the order is that of freeing, suffix first.

The paper counts what a conversation has in the cache. For blocks in chains that leaves open:

- H is the longest request seen, not what is left of it: else trimming would go on to the head.
- A block that several requests held keeps the largest H since it was filled: it is safe only if it
  is safe for all who share it. H then never rises with depth, so that chains lose their end first.
- B is kept in whole blocks, at least B tokens.
- A preempted request comes back for its blocks, and its H is not known: they are protected whole
  until it ends or they are filled anew. The exception is an xi so large that no request of this
  model has anything to protect; then the order is LRU's.
- A block's region is settled when it is freed. So the copy of a block that a preempted request
  computes anew (vLLM: the last one of a prompt of whole blocks) may outlast what comes before it.

This is the plugin's policy (`engine.tlru`), block for block. At xi 0, and at an xi above all that
can occur, it is `prefix_lru`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from evictune_policies.algorithms.awaited import (
    Awaited,
    expect,
    forget,
    is_awaited,
    new_awaited,
    settle,
)
from evictune_policies.algorithms.lists import Lists, append, first, new_lists, unlink
from evictune_policies.algorithms.operations import IMPLEMENTATIONS, Operations, Visit, never
from evictune_policies.algorithms.pool import NONE, Int32, Pool

SAFE, PROTECTED = 0, 1


class TLRU(NamedTuple):
    """regions: two lists of the blocks that nobody holds, SAFE and PROTECTED, first to go first.

    longest: per block: the largest H of a request that held it since it was filled; 0: none ended.
    slack: q_hat - xi, in tokens.
    protects_nothing: 1 if no request can be so long that it had something to protect.
    """

    regions: Lists
    longest: Int32
    awaited: Awaited
    block_tokens: int
    slack: int
    protects_nothing: int


def new_t_lru(
    capacity_blocks: int, block_tokens: int, xi_tokens: int, q_hat_tokens: int, max_tokens: int
) -> TLRU:
    """The policy's state before the first request.

    Args:
        max_tokens: The longest request that the model takes.
    """
    return TLRU(
        regions=new_lists(capacity_blocks, 2),
        longest=np.zeros(capacity_blocks, np.int32),
        awaited=new_awaited(capacity_blocks),
        block_tokens=block_tokens,
        slack=q_hat_tokens - xi_tokens,
        protects_nothing=int(xi_tokens >= max_tokens + q_hat_tokens),
    )


def start(state: TLRU, pool: Pool, block: int, visit: Visit) -> None:
    """Whoever held the block before it was filled anew does not count."""
    state.longest[block] = 0
    forget(state.awaited, block)


def hit(state: TLRU, pool: Pool, block: int, visit: Visit) -> None:
    """A block that is held again leaves its region."""
    if pool.references[block] == 0:
        unlink(state.regions, block)


def leave(state: TLRU, pool: Pool, block: int, visit: Visit) -> None:
    """Learn the length of a request that ended; wait for one that was preempted."""
    if not visit.finished:
        expect(state.awaited, block, visit.request)
        return
    settle(state.awaited, visit.request, state.longest, visit.tokens)
    if state.longest[block] < visit.tokens:
        state.longest[block] = visit.tokens


def free(state: TLRU, pool: Pool, block: int, visit: Visit) -> None:
    """Join the end of the region that the block belongs to."""
    leave(state, pool, block, visit)
    region = SAFE if is_safe(state, pool, block) else PROTECTED
    append(state.regions, len(pool.content) + region, block)


def is_safe(state: TLRU, pool: Pool, block: int) -> bool:
    """Whether losing the block costs no tail excess latency."""
    longest = state.longest[block]
    if longest == 0 or is_awaited(state.awaited, block):
        return bool(state.protects_nothing)
    begins = pool.depth[pool.content[block]] * state.block_tokens
    return bool(begins >= longest + state.slack)


def victim(state: TLRU, pool: Pool) -> int:
    """The head of the first region that has blocks."""
    anchor = len(pool.content)
    block = first(state.regions, anchor + SAFE)
    if block == NONE:
        block = first(state.regions, anchor + PROTECTED)
    unlink(state.regions, block)
    return block


IMPLEMENTATIONS[TLRU] = Operations(start, hit, free, victim, never, leave)
