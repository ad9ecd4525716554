"""PGDSF, RAGCache's prefix-aware GDSF.

    priority = clock + frequency * (mean over computations of T(cached, new) / new)

(Jin et al., "RAGCache: efficient knowledge caching for retrieval-augmented generation", arXiv
2404.12457, section 5.1 and algorithm 1.) T is the time of a request's prefill of `new` tokens after
`cached` ones. A content's cost per token is thus that of the requests that had to compute it: how
much was cached before it, and how much was computed along with it, both count, and the mean is over
all times that it was missing. The clock is the largest priority evicted. Leaves only, as in the
paper (`leaves`).

RAGCache's nodes are documents, ours are blocks. A node stays known while its document is not
cached, or there would be nothing to take a mean over; so frequency, the sum of costs and their
count belong to the content, not to the block, and outlive an eviction. The paper counts frequency
"within a time window" without giving one: here since the trace began. T is measured and
interpolated there; here it is the cost model (`prefill`): without a quadratic part the cost per
token is the same for all, and this is LFU with dynamic ageing that remembers what it evicted.
Priority is set when the last request that held the block lets go of it, as in `greedy_dual_size`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evictune_policies.algorithms.leaves import (
    Leaves,
    admit,
    hold,
    new_leaves,
    rank,
    release,
    take_by_age,
)
from evictune_policies.algorithms.operations import IMPLEMENTATIONS, Operations, Visit, never
from evictune_policies.algorithms.pool import Int32, Pool
from evictune_policies.algorithms.prefill import Prefill, seconds


class PGDSF(NamedTuple):
    """leaves: by priority. clock: one number. prefill: the cost model.

    uses, computed, cost: per content, of all time: how often it was asked for, how often it was
        computed, and the sum of T / new over these, seconds a token.
    cached: per request: how many blocks it found.
    """

    leaves: Leaves
    clock: NDArray[np.float64]
    prefill: Prefill
    uses: Int32
    computed: Int32
    cost: NDArray[np.float64]
    cached: Int32


def new_pgdsf(capacity_blocks: int, prefill: Prefill, contents: int, requests: int) -> PGDSF:
    """The policy's state before the first request."""
    return PGDSF(
        leaves=new_leaves(capacity_blocks),
        clock=np.zeros(1, np.float64),
        prefill=prefill,
        uses=np.zeros(contents, np.int32),
        computed=np.zeros(contents, np.int32),
        cost=np.zeros(contents, np.float64),
        cached=np.zeros(requests, np.int32),
    )


def start(state: PGDSF, pool: Pool, block: int, visit: Visit) -> None:
    """One more use, and one more computation: at what cost?

    A request's blocks start in the order of its chain. A first one that lies before what an earlier
    run of the request had found (it was preempted) corrects that.
    """
    content = pool.content[block]
    cached = min(state.cached[visit.request], pool.depth[content])
    state.cached[visit.request] = cached
    size = state.prefill.block_tokens
    before = float(cached * size)
    new = max(visit.tokens - before, float(size))
    state.uses[content] += 1
    state.computed[content] += 1
    state.cost[content] += seconds(state.prefill, before, new) / new
    admit(state.leaves, pool, block)


def hit(state: PGDSF, pool: Pool, block: int, visit: Visit) -> None:
    """One more use; a request's hits come in the order of its chain."""
    content = pool.content[block]
    state.uses[content] += 1
    state.cached[visit.request] = pool.depth[content] + 1
    hold(state.leaves, block)


def free(state: PGDSF, pool: Pool, block: int, visit: Visit) -> None:
    """A candidate by its priority."""
    content = pool.content[block]
    mean = state.cost[content] / state.computed[content]
    rank(state.leaves, block, state.clock[0] + state.uses[content] * mean)
    release(state.leaves, pool, block)


def victim(state: PGDSF, pool: Pool) -> int:
    """The leaf with the smallest priority."""
    return take_by_age(state.leaves, pool, state.clock)


IMPLEMENTATIONS[PGDSF] = Operations(start, hit, free, victim, never)
