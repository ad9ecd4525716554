"""Replay in order only: one request at a time, as if each ended before the next arrived.

Exact in what it models, and the fastest way to compare policies; what it leaves out is that
requests overlap (`timed`). As in vLLM:

- The last token of a prompt is always computed, so at most (prompt - 1) // block size blocks are
  hits. A prompt of whole blocks that repeats computes its last one again, and keeps the copy.
- A block is cached when it is full and its tokens are computed. The very last token of an output
  is sampled but never computed.
- A partial last block takes a place while the request runs. So does an output of which the trace
  does not know the tokens; nobody can find either afterwards.

A replay takes, besides the trace, 36 bytes for each block of the pool under `prefix-lru`, 48 under
`t-lru`, and 9 for each content that ever occurs (`make bench` holds it to that).
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evictune_policies.algorithms.catalog import POLICIES, Chains, Cost, Policy, Setting
from evictune_policies.algorithms.operations import Visit, free, hit, start
from evictune_policies.algorithms.pool import Int32, Pool, fill, new_pool
from evictune_policies.replay.compiled import compiled
from evictune_policies.replay.mechanics import (
    Places,
    age_bin,
    drop_expired,
    longest_prefix,
    new_places,
    put_blank,
    take,
)
from evictune_policies.replay.simulation.requests import Requests, requests_of
from evictune_policies.replay.simulation.result import Result
from evictune_policies.replay.traces.trace import Trace

Int64 = NDArray[np.int64]


class Tally(NamedTuple):
    """Filled in by the loop.

    hits, lost: per request, blocks: see `Result.cached_tokens` and `Result.recomputed`.
    seen: per content: whether it was ever in the pool.
    held: the blocks of the request that runs, in the order of its chain.
    """

    hits: Int64
    lost: Int64
    seen: NDArray[np.bool_]
    held: Int32


def replay(
    state: object,
    pool: Pool,
    places: Places,
    requests: Requests,
    tally: Tally,
    block_tokens: int,
    suffix_first: bool,
) -> None:
    """Run all requests."""
    for request in range(len(requests.starts) - 1):
        drop_expired(state, pool, places, requests.arrival[request])
        admit(state, pool, places, requests, tally, request)
        extend(state, pool, places, requests, tally, request, block_tokens)
        release(state, pool, places, requests, tally, request, suffix_first)


def admit(
    state: object, pool: Pool, places: Places, requests: Requests, tally: Tally, request: int
) -> None:
    """Find the longest prefix, and hold its blocks."""
    now = requests.arrival[request]
    visit = Visit(now, 2 * request, request, requests.prompt_tokens[request], 0)
    begin = requests.starts[request]
    found = longest_prefix(pool, requests.contents, begin, requests.lookup[request])
    tally.hits[request] = found
    for index in range(found):
        block = pool.resident[requests.contents[begin + index]]
        places.hit_age[age_bin(now - places.released[block])] += 1
        hit(state, pool, block, visit)
        pool.references[block] += 1
        tally.held[index] = block


def extend(
    state: object,
    pool: Pool,
    places: Places,
    requests: Requests,
    tally: Tally,
    request: int,
    block_tokens: int,
) -> None:
    """Take blocks for the rest of the prompt, all at once, then one after another for the output.

    A block is filled when its last token is computed.
    """
    now = requests.arrival[request]
    prompt_blocks = -(-requests.prompt_tokens[request] // block_tokens)
    whole_prompt = requests.prompt_tokens[request] // block_tokens
    whole = requests.whole[request]
    for index in range(tally.hits[request], prompt_blocks):
        tally.held[index] = take(state, pool, places, now)
    for index in range(tally.hits[request], min(whole, whole_prompt)):
        fill_next(state, pool, requests, tally, request, index, block_tokens)
    for index in range(whole_prompt, requests.blocks[request]):
        if index >= prompt_blocks:
            tally.held[index] = take(state, pool, places, now)
        if index < whole:
            fill_next(state, pool, requests, tally, request, index, block_tokens)


def fill_next(
    state: object,
    pool: Pool,
    requests: Requests,
    tally: Tally,
    request: int,
    index: int,
    block_tokens: int,
) -> None:
    """The request's block `index` is full."""
    content = requests.contents[requests.starts[request] + index]
    if tally.seen[content] and index < requests.lookup[request]:
        tally.lost[request] += 1
    tally.seen[content] = True
    block = tally.held[index]
    pool.references[block] = 1
    fill(pool, block, content)
    tokens = max(requests.prompt_tokens[request], (index + 1) * block_tokens)
    start(state, pool, block, Visit(requests.arrival[request], 2 * request, request, tokens, 0))


def release(
    state: object,
    pool: Pool,
    places: Places,
    requests: Requests,
    tally: Tally,
    request: int,
    suffix_first: bool,
) -> None:
    """The request ends and lets go of its blocks."""
    now = requests.arrival[request]
    visit = Visit(now, 2 * request + 1, request, requests.tokens[request], 1)
    whole = requests.whole[request]
    for index in range(whole, requests.blocks[request]):
        put_blank(places, tally.held[index])
    for index in range(whole):
        block = tally.held[whole - 1 - index if suffix_first else index]
        pool.references[block] -= 1
        places.released[block] = now
        free(state, pool, block, visit)


class OrderReplay:
    """A trace made ready once, to be replayed under any number of policies."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self._requests = requests_of(trace)

    @cached_property
    def _chains(self) -> Chains:
        """For policies that know the future."""
        return self.trace.chains()

    @cached_property
    def _without_future(self) -> Chains:
        """For the others: how much there is, but not which requests want what."""
        trace = self.trace
        return Chains(
            starts=np.zeros(1, np.int64),
            contents=np.zeros(0, np.int32),
            parent=trace.parent,
            depth=trace.depth,
            prompt_tokens=trace.prompt_tokens,
            tokens=trace.tokens,
            final=trace.final,
        )

    @property
    def least_capacity(self) -> int:
        """Blocks of the longest request: with less it could not run."""
        return int(self._requests.blocks.max(initial=1))

    def run(
        self,
        policy_name: str,
        capacity_blocks: int,
        *,
        xi_tokens: int = 0,
        q_hat_tokens: int = 0,
        cost: Cost = Cost(),  # noqa: B008 - it is frozen
        plain: bool = False,
    ) -> Result:
        """Replay under one policy. plain: uncompiled, to check the compiled loop.

        Raises:
            ValueError: An unknown policy, or a request longer than the pool.
        """
        policy = self._policy(policy_name)
        trace, requests = self.trace, self._requests
        chains = self._chains if policy.offline else self._without_future
        setting = Setting(
            capacity_blocks, trace.block_tokens, chains, xi_tokens, q_hat_tokens, cost
        )
        if policy.needs_blocks is not None:
            setting = replace(setting, capacity_blocks=policy.needs_blocks(setting))
        self._check(setting.capacity_blocks)
        loop = replay if plain else _compiled_replay
        began = time.perf_counter()
        state = policy.build(setting)
        pool = new_pool(setting.capacity_blocks, trace.parent, trace.depth)
        places = new_places(setting.capacity_blocks)
        hits, lost = np.zeros((2, trace.requests), np.int64)
        seen = np.zeros(trace.distinct, np.bool_)
        tally = Tally(hits, lost, seen, np.empty(setting.capacity_blocks, np.int32))
        loop(state, pool, places, requests, tally, trace.block_tokens, policy.suffix_first)
        return Result(
            policy=policy.name,
            xi_tokens=xi_tokens if "xi_tokens" in policy.parameters else None,
            q_hat_tokens=q_hat_tokens if "q_hat_tokens" in policy.parameters else None,
            capacity_blocks=capacity_blocks,
            block_tokens=trace.block_tokens,
            fidelity="order",
            prompt_tokens=trace.prompt_tokens,
            cached_tokens=hits * trace.block_tokens,
            recomputed=lost * trace.block_tokens,
            hit_age=places.hit_age,
            eviction_age=places.eviction_age,
            seconds=time.perf_counter() - began,
        )

    def _policy(self, name: str) -> Policy:
        if name not in POLICIES:
            raise ValueError(f"policy {name!r}: unknown; use one of {', '.join(POLICIES)}")
        return POLICIES[name]

    def _check(self, capacity_blocks: int) -> None:
        if capacity_blocks < self.least_capacity:
            request = int(self._requests.blocks.argmax())
            raise ValueError(
                f"capacity {capacity_blocks:,} blocks: request {request} alone needs "
                f"{self.least_capacity:,} blocks of {self.trace.block_tokens} tokens; "
                f"use at least that many (--capacity)"
            )


_compiled_replay = compiled(replay)


def replay_in_order(
    trace: Trace,
    policy_name: str,
    capacity_blocks: int,
    *,
    xi_tokens: int = 0,
    q_hat_tokens: int = 0,
    cost: Cost = Cost(),  # noqa: B008 - it is frozen
) -> Result:
    """Replay a trace under one policy, one request at a time.

    To compare several, make one `OrderReplay` and run each: preparing a trace takes time.
    Raises ValueError for an unknown policy, or a request longer than the pool.
    """
    return OrderReplay(trace).run(
        policy_name, capacity_blocks, xi_tokens=xi_tokens, q_hat_tokens=q_hat_tokens, cost=cost
    )
