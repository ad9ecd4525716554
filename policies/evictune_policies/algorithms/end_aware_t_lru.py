"""End-aware T-LRU: T-LRU that is told when a conversation has ended.

From https://arxiv.org/abs/2510.15152, appendix G.1, "T-LRU Variants with Future Knowledge": of a
conversation that will not continue, all blocks are evicted; all others are treated as by `t_lru`.
The paper takes the knowledge from the trace, and so does this: it is a yardstick for how much a
forecast of that one bit is worth, and nothing that can be run.

Chosen where the paper, whose conversations share nothing, leaves it open:

- A block is *over* when every conversation that held it since it was filled has ended.
- What is over is evicted before what is TEL-safe, in LRU order; it is not dropped before there is
  need, because a request that nobody foresaw may still hit it, at no cost to others.
- A preempted request comes back: its blocks are protected when it lets go of them.
- Which request continues which is read off the chains (`turns.turns_before`), whether there
  is a next turn at all off the trace (`Chains.final`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evictune_policies.algorithms.lists import Lists, append, first, new_lists, unlink
from evictune_policies.algorithms.operations import IMPLEMENTATIONS, Operations, Visit, never
from evictune_policies.algorithms.pool import NONE, Int32, Pool
from evictune_policies.algorithms.turns import last_turns, turns_before

if TYPE_CHECKING:
    from evictune_policies.algorithms.catalog import Setting

Int64 = NDArray[np.int64]

OVER, SAFE, PROTECTED = 0, 1, 2


class ForetoldTLRU(NamedTuple):
    """regions: three lists of the blocks that nobody holds, OVER, SAFE and PROTECTED.

    ends: per block: the latest last turn of a conversation that held it since it was filled.
    keep: per block: the most tokens that one of those needs at its next turn.
    last: per request: the last turn of its conversation after it; NONE: it is the last.
    needs: per request: the tokens of a prompt that continues it, less xi.
    """

    regions: Lists
    ends: Int32
    keep: Int32
    last: Int64
    needs: Int64
    block_tokens: int


def new_foretold_t_lru(setting: Setting, last: Int64, next_prompt_tokens: Int64) -> ForetoldTLRU:
    """The policy's state before the first request, given what it is told of each request."""
    blocks = setting.capacity_blocks
    return ForetoldTLRU(
        regions=new_lists(blocks, 3),
        ends=np.full(blocks, NONE, np.int32),
        keep=np.zeros(blocks, np.int32),
        last=last,
        needs=np.maximum(next_prompt_tokens - setting.xi_tokens, 0),
        block_tokens=setting.block_tokens,
    )


def new_end_aware_t_lru(setting: Setting) -> ForetoldTLRU:
    """Told of ends; the next prompt is guessed: H + q_hat."""
    chains = setting.chains
    last = last_turns(chains, turns_before(chains))
    return new_foretold_t_lru(setting, last, chains.tokens + setting.q_hat_tokens)


def start(state: ForetoldTLRU, pool: Pool, block: int, visit: Visit) -> None:
    """Whoever held the block before it was filled anew does not count."""
    state.ends[block] = NONE
    state.keep[block] = 0


def hit(state: ForetoldTLRU, pool: Pool, block: int, visit: Visit) -> None:
    """A block that is held again leaves its region."""
    if pool.references[block] == 0:
        unlink(state.regions, block)


def leave(state: ForetoldTLRU, pool: Pool, block: int, visit: Visit) -> None:
    """Learn what the conversation of a request that ended needs."""
    if visit.finished:
        state.keep[block] = max(state.keep[block], state.needs[visit.request])
        state.ends[block] = max(state.ends[block], state.last[visit.request])


def free(state: ForetoldTLRU, pool: Pool, block: int, visit: Visit) -> None:
    """Join the end of the region that the block belongs to."""
    leave(state, pool, block, visit)
    begins = pool.depth[pool.content[block]] * state.block_tokens
    region = PROTECTED
    if visit.finished:
        if state.ends[block] <= visit.request:
            region = OVER
        elif begins >= state.keep[block]:
            region = SAFE
    append(state.regions, len(pool.content) + region, block)


def victim(state: ForetoldTLRU, pool: Pool) -> int:
    """The head of the first region that has blocks."""
    anchor = len(pool.content)
    block = first(state.regions, anchor + OVER)
    if block == NONE:
        block = first(state.regions, anchor + SAFE)
    if block == NONE:
        block = first(state.regions, anchor + PROTECTED)
    unlink(state.regions, block)
    return block


IMPLEMENTATIONS[ForetoldTLRU] = Operations(start, hit, free, victim, never, leave)
