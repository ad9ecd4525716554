"""The state of a simulated vLLM engine: its requests, its queues, who holds which block.

Arrays throughout, so that the functions on them can be compiled; they also run as they are. Numbers
that change are in `Engine.counts`, by the names below.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evictune_policies.algorithms.catalog import Chains
from evictune_policies.algorithms.pool import NONE, Int32, Pool, new_pool
from evictune_policies.replay.mechanics import Places, new_places
from evictune_policies.replay.simulation.engine_model import EngineModel
from evictune_policies.replay.traces.trace import Trace

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

# Indices of `Engine.counts`.
RUNNING = 0  # requests that hold blocks, in `Rows.running`
SCHEDULED = 1  # requests that take part in the step, in `Rows.scheduled`
FREE = 2  # blocks that nobody holds, blank ones included
UNUSED = 3  # rows of `table` that nobody uses, in `Rows.unused`
PENDING = 4  # requests to come whose arrival is known, in `Requests.pending`
FIRST_WAITING = 5  # the head of the queue; NONE: it is empty
LAST_WAITING = 6
VISITS = 7  # so far: `operations.Visit.step`
FINISHED = 8  # requests that ended
COUNTS = 9


class Limits(NamedTuple):
    """What does not change. 1 and 0 stand for yes and no."""

    block_tokens: int
    max_num_seqs: int
    max_num_batched_tokens: int
    reserve_full_isl: int
    watermark_blocks: int
    suffix_first: int
    step_seconds: float
    linear: float
    quadratic: float


class Requests(NamedTuple):
    """Per request [n].

    prompt, output: tokens; at least one is put out.
    think: seconds between the finish of the turn before and the arrival.
    follower, sibling: the first request that waits for the finish of this one; the next that waits
        for the same one; NONE: there is none.
    start: whole block k, once it is filled, has the content `chain[start + k]`.
    arrival: NaN while it is not known.
    behind: who is behind it in the queue.
    pending: not per request: a binary heap of requests to come, by arrival, then number.
    computed: tokens whose keys and values are in the blocks it holds.
    produced: output tokens so far.
    row: of `Engine.table` while it runs.
    cached, lost: tokens of the prompt that were found in the cache when it was first admitted, and
        those that were not although they had been in it.
    first_token, finish: seconds since the trace began.
    preemptions: how often it lost its blocks.
    """

    prompt: Int64
    output: Int64
    think: Float64
    follower: Int32
    sibling: Int32
    start: Int64
    arrival: Float64
    behind: Int32
    pending: Int32
    computed: Int64
    produced: Int64
    row: Int32
    cached: Int64
    lost: Int64
    first_token: Float64
    finish: Float64
    preemptions: Int32


class Rows(NamedTuple):
    """As many as there may be running requests.

    held, filled: per row of the table: how many blocks there are, and how many of them have
        content, those that were hits included.
    unused: a stack of rows.
    running: requests with blocks, in order of admission; the last is preempted first.
    scheduled, tokens: who computes how many tokens in this step.
    """

    held: Int64
    filled: Int64
    unused: Int32
    running: Int32
    scheduled: Int32
    tokens: Int64


class Engine(NamedTuple):
    """Everything but the policy's state.

    chain: the contents of all requests' whole blocks, one request after the other.
    seen: per content: whether it was ever cached.
    table: per row: the blocks that one running request holds.
    """

    limits: Limits
    requests: Requests
    rows: Rows
    chain: Int32
    seen: NDArray[np.bool_]
    table: Int32
    counts: Int64
    pool: Pool
    places: Places


def engine_chains(trace: Trace) -> Chains:
    """The contents of all whole blocks a request can fill.

    The last output token is never put in: a request of n tokens computes n - 1. What lies behind
    the known tokens is *anonymous*: it gets contents of its own, which nobody else will ask for but
    which vLLM caches all the same, and which displace others.
    """
    output = np.maximum(trace.output_tokens, 1)  # a model puts out one token at least
    whole = (trace.prompt_tokens + output - 1) // trace.block_tokens
    known = np.minimum(trace.whole_blocks, whole)
    starts = np.zeros(len(whole) + 1, np.int64)
    np.cumsum(whole, out=starts[1:])
    request = np.repeat(np.arange(len(whole)), whole)
    index = np.arange(starts[-1]) - starts[request]
    is_known = index < known[request]
    contents = np.empty(starts[-1], np.int32)
    contents[is_known] = trace.contents[trace.starts[request[is_known]] + index[is_known]]
    unknown = np.flatnonzero(~is_known)
    contents[unknown] = trace.distinct + np.arange(len(unknown))
    before = np.where(index[unknown] > 0, contents[unknown - 1], NONE)
    return Chains(
        starts=starts,
        contents=contents,
        parent=np.concatenate([trace.parent, before]).astype(np.int32),
        depth=np.concatenate([trace.depth, index[unknown]]).astype(np.int32),
        prompt_tokens=trace.prompt_tokens,
        tokens=trace.prompt_tokens + output,
        final=trace.final,
    )


def new_requests(trace: Trace, chains: Chains) -> Requests:
    """All requests of a trace, none of them arrived."""
    n = trace.requests
    waits = ~np.isnan(trace.think) & (trace.previous != NONE)
    follower = np.full(n, NONE, np.int32)
    sibling = np.full(n, NONE, np.int32)
    for request in np.flatnonzero(waits)[::-1]:
        sibling[request] = follower[trace.previous[request]]
        follower[trace.previous[request]] = request
    fixed = np.flatnonzero(~waits)  # ascending in time: a heap as they stand
    pending = np.zeros(n, np.int32)
    pending[: len(fixed)] = fixed
    return Requests(
        prompt=trace.prompt_tokens.astype(np.int64),
        output=chains.tokens - trace.prompt_tokens,
        think=np.where(waits, trace.think, 0.0),
        follower=follower,
        sibling=sibling,
        start=chains.starts[:-1].copy(),
        arrival=np.where(waits, np.nan, trace.arrival),
        behind=np.full(n, NONE, np.int32),
        pending=pending,
        computed=np.zeros(n, np.int64),
        produced=np.zeros(n, np.int64),
        row=np.full(n, NONE, np.int32),
        cached=np.full(n, NONE, np.int64),
        lost=np.zeros(n, np.int64),
        first_token=np.full(n, np.nan),
        finish=np.full(n, np.nan),
        preemptions=np.zeros(n, np.int32),
    )


def new_rows(rows: int) -> Rows:
    """Nobody runs."""
    return Rows(
        held=np.zeros(rows, np.int64),
        filled=np.zeros(rows, np.int64),
        unused=np.arange(rows, dtype=np.int32),
        running=np.zeros(rows, np.int32),
        scheduled=np.zeros(rows, np.int32),
        tokens=np.zeros(rows, np.int64),
    )


def new_engine(
    trace: Trace, chains: Chains, capacity_blocks: int, model: EngineModel, suffix_first: bool
) -> Engine:
    """An idle engine with an empty cache, all requests still to come."""
    requests = new_requests(trace, chains)
    most_blocks = int((chains.tokens.max(initial=1) - 1) // trace.block_tokens) + 1
    counts = np.zeros(COUNTS, np.int64)
    counts[FREE] = capacity_blocks
    counts[UNUSED] = model.max_num_seqs
    counts[PENDING] = np.count_nonzero(~np.isnan(requests.arrival))
    counts[[FIRST_WAITING, LAST_WAITING]] = NONE
    return Engine(
        limits=Limits(
            block_tokens=trace.block_tokens,
            max_num_seqs=model.max_num_seqs,
            max_num_batched_tokens=model.max_num_batched_tokens,
            reserve_full_isl=int(model.scheduler_reserve_full_isl),
            # vLLM takes the share of all blocks, the null block included.
            watermark_blocks=int(model.watermark * (capacity_blocks + 1)),
            suffix_first=int(suffix_first),
            step_seconds=float(model.step_seconds),
            linear=float(model.cost.linear),
            quadratic=float(model.cost.quadratic),
        ),
        requests=requests,
        rows=new_rows(model.max_num_seqs),
        chain=chains.contents,
        seen=np.zeros(len(chains.parent), np.bool_),
        table=np.zeros((model.max_num_seqs, most_blocks), np.int32),
        counts=counts,
        pool=new_pool(capacity_blocks, chains.parent, chains.depth),
        places=new_places(capacity_blocks),
    )


def packed(engine: Engine) -> Engine:
    """The same for compiled code: one array of records takes the place of a tuple of arrays.

    Its fields go by the same names. Compiling takes time in proportion to the number of arrays that
    every function is given.
    """
    return engine._replace(requests=_records(engine.requests), rows=_records(engine.rows))


def _records(columns: Requests | Rows) -> Any:
    dtype = np.dtype(
        [(name, column.dtype) for name, column in columns._asdict().items()], align=True
    )
    return np.rec.fromarrays(list(columns), dtype=dtype)
