"""ET-LRU: the block goes first whose loss is expected to cost the least tail excess latency.

Expected-tail-optimized LRU (https://arxiv.org/abs/2510.15152, section 4, definition 1, and appendix
C, policy 2). A conversation that was silent for a time s is still alive with probability
exp(-mu s), mu the rate at which conversations end. Losing the block that starts at token `begins`
matters if its next prompt adds more than `begins + xi - H` tokens. The block for which

    exp(-mu s) * P(Q > begins + xi - H)

is least is evicted. With a known Q this is T-LRU. The paper takes mu and the distribution of Q as
known and turns as equally frequent in all conversations; here, online:

- Q is exponential with mean q_hat: q_hat tokens beyond count as much as 1/mu seconds of silence.
  Blocks are kept in classes of a quarter of that; beyond sixteen times q_hat nothing is expected.
- mu is learned: of the turns so far a share p was followed by another, after a mean silence g; in
  the paper's model mu = (1 - p) / g. A request is a next turn if another one ended on one of its
  whole blocks, cached or not; 8 bytes a content remember when. No return so far: mu = 0.
- H of a block is the largest since it was filled, as in `t_lru`. A preempted request comes back for
  sure, for everything: its blocks are in the first class.

Within a class the order is that of freeing, suffix first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evictune_policies.algorithms.lists import Lists, append, first, new_lists, unlink
from evictune_policies.algorithms.operations import IMPLEMENTATIONS, Operations, Visit, never
from evictune_policies.algorithms.pool import NONE, Int32, Pool

CLASSES = 65
PER_Q_HAT = 4

# What has been counted: the newest request, requests, those that were a next turn, last step.
LATEST, REQUESTS, RETURNS, ENDING = 0, 1, 2, 3
# Seconds of silence: before the newest request (NONE: it is a first turn), and in all.
NEWEST, TOTAL = 0, 1


class ETLRU(NamedTuple):
    """classes: lists of the blocks that nobody holds, by P; the last is expected to cost nothing.

    longest: per block: the largest H of a request that held it since it was filled.
    freed: per block: when it was freed, seconds. ended: per content: when a request last ended with
    it; NONE: none did. counts, silence: see the constants.
    """

    classes: Lists
    longest: Int32
    freed: NDArray[np.float64]
    ended: NDArray[np.float64]
    counts: NDArray[np.int64]
    silence: NDArray[np.float64]
    block_tokens: int
    xi_tokens: int
    q_hat_tokens: int


def new_et_lru(
    capacity_blocks: int, block_tokens: int, xi_tokens: int, q_hat_tokens: int, contents: int
) -> ETLRU:
    """The policy's state before the first request. contents: how many different ones there are."""
    return ETLRU(
        classes=new_lists(capacity_blocks, CLASSES),
        longest=np.zeros(capacity_blocks, np.int32),
        freed=np.zeros(capacity_blocks),
        ended=np.full(contents, float(NONE)),
        counts=np.array([NONE, 0, 0, NONE], np.int64),
        silence=np.array([float(NONE), 0.0]),
        block_tokens=block_tokens,
        xi_tokens=xi_tokens,
        q_hat_tokens=q_hat_tokens,
    )


def start(state: ETLRU, pool: Pool, block: int, visit: Visit) -> None:
    """Whoever held the block before it was filled anew does not count."""
    state.longest[block] = 0
    observe(state, pool.content[block], visit)


def hit(state: ETLRU, pool: Pool, block: int, visit: Visit) -> None:
    """A block that is held again leaves its class."""
    if pool.references[block] == 0:
        unlink(state.classes, block)
    observe(state, pool.content[block], visit)


def observe(state: ETLRU, content: int, visit: Visit) -> None:
    """Learn from the newest request, whose blocks come in the order of the chain."""
    counts, silence = state.counts, state.silence
    if visit.request > counts[LATEST]:
        counts[LATEST] = visit.request
        counts[REQUESTS] += 1
        silence[NEWEST] = NONE
    ended = state.ended[content]
    if ended == NONE or visit.request != counts[LATEST]:
        return
    if silence[NEWEST] == NONE:
        counts[RETURNS] += 1
        silence[NEWEST] = 0.0
    # The longest chain that another request ended with is the turn before.
    silence[TOTAL] += visit.now - ended - silence[NEWEST]
    silence[NEWEST] = visit.now - ended


def leave(state: ETLRU, pool: Pool, block: int, visit: Visit) -> None:
    """Learn the length of a request that ended, and when it ended: its last block comes first."""
    if not visit.finished:
        return
    if state.counts[ENDING] != visit.step:
        state.counts[ENDING] = visit.step
        state.ended[pool.content[block]] = visit.now
    if state.longest[block] < visit.tokens:
        state.longest[block] = visit.tokens


def free(state: ETLRU, pool: Pool, block: int, visit: Visit) -> None:
    """Join the end of the class that the block belongs to."""
    leave(state, pool, block, visit)
    state.freed[block] = visit.now
    index = 0
    if visit.finished:
        begins = pool.depth[pool.content[block]] * state.block_tokens
        index = class_of(state, begins + state.xi_tokens - state.longest[block])
    append(state.classes, len(pool.content) + index, block)


def class_of(state: ETLRU, beyond: int) -> int:
    """The class of a block that matters if the next prompt adds more than `beyond` tokens."""
    if state.q_hat_tokens == 0:  # Q is 0 for certain
        return CLASSES - 1 if beyond >= 0 else 0
    if beyond <= 0:
        return 0
    return int(min(PER_Q_HAT * beyond // state.q_hat_tokens, CLASSES - 1))


def victim(state: ETLRU, pool: Pool) -> int:
    """Of the first blocks of all classes the one that is worth least."""
    anchor = len(pool.content)
    chosen = first(state.classes, anchor + CLASSES - 1)
    if chosen == NONE:
        counts, total = state.counts, state.silence[TOTAL]
        ends_per_second = 0.0
        if total > 0.0:
            share = counts[RETURNS] / counts[REQUESTS]
            ends_per_second = (1.0 - share) * counts[RETURNS] / total
        least = -np.inf
        for index in range(CLASSES - 2, -1, -1):
            block = first(state.classes, anchor + index)
            if block == NONE:
                continue
            worthless = index / PER_Q_HAT - ends_per_second * state.freed[block]
            if worthless > least:
                chosen, least = block, worthless
    unlink(state.classes, chosen)
    return chosen


IMPLEMENTATIONS[ETLRU] = Operations(start, hit, free, victim, never, leave)
