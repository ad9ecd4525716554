"""Timed replay: requests overlap, wait for each other and preempt each other, as under vLLM.

A simulation of vLLM's v1 scheduler and KV cache manager, step by step and block by block; what
takes the model's place is `EngineModel`, which says how long a step takes. Exact against vLLM's own
classes for stock order and for T-LRU with the plugin (tests/integration/test_replay_exact.py):
look-up at scheduling, chunked prefill, blocks cached when they are allocated, the blocks of running
requests pinned, preemption of the last admitted, output blocks cached as they fill.

A request arrives at its trace's time, or, where the trace knows the turn before and the think time,
that long after the turn before finished *here*: a slow engine is asked later.

Outputs of which the trace does not know the tokens are cached all the same (`engine.engine_chains`)
and displace others, though nobody will ask for them: so hits are counted low where the next turn's
prompt repeats them. A reader that knows better gives the trace the outputs' contents.
"""

from __future__ import annotations

import time

import numpy as np

from evictune_policies.algorithms.catalog import POLICIES, Cost, Policy, Setting
from evictune_policies.algorithms.pool import NONE
from evictune_policies.replay.compiled import compiled
from evictune_policies.replay.simulation import arrivals, kv_manager, scheduler
from evictune_policies.replay.simulation.arrivals import arrive
from evictune_policies.replay.simulation.engine import (
    FINISHED,
    FIRST_WAITING,
    PENDING,
    RUNNING,
    Engine,
    Float64,
    engine_chains,
    new_engine,
    packed,
)
from evictune_policies.replay.simulation.engine_model import EngineModel
from evictune_policies.replay.simulation.result import Result
from evictune_policies.replay.simulation.scheduler import schedule, step_seconds, update
from evictune_policies.replay.traces.trace import Trace


def run(engine: Engine, state: object, clock: Float64) -> None:
    """Step until every request has finished. clock: [seconds since the trace began]."""
    while engine.counts[FINISHED] < len(engine.requests.prompt):
        arrive(engine, clock[0])
        if engine.counts[RUNNING] == 0 and engine.counts[FIRST_WAITING] == NONE:
            if engine.counts[PENDING] == 0:
                return
            clock[0] = engine.requests.arrival[engine.requests.pending[0]]
            continue
        schedule(engine, state, clock[0])
        clock[0] += step_seconds(engine)
        update(engine, state, clock[0])


class TimedReplay:
    """A trace made ready once, to be replayed on one engine under any number of policies."""

    def __init__(self, trace: Trace, engine: EngineModel) -> None:
        self.trace = trace
        self.engine = engine
        self._chains = engine_chains(trace)

    @property
    def least_capacity(self) -> int:
        """Blocks of the longest request: with less it could not run."""
        computed = self._chains.tokens - 1  # the last token is put out, and never put in
        return int(-(-computed.max(initial=1) // self.trace.block_tokens))

    def run(
        self,
        policy_name: str,
        capacity_blocks: int,
        *,
        xi_tokens: int = 0,
        q_hat_tokens: int = 0,
        cost: Cost | None = None,
        plain: bool = False,
    ) -> Result:
        """Replay under one policy.

        cost: what the policy believes a prefill to cost; None: the engine's own.
        plain: uncompiled, to check the compiled loop.

        Raises:
            ValueError: An unknown policy, an offline one, or a request longer than the pool.
        """
        policy = _online(policy_name)
        self._check(capacity_blocks)
        trace = self.trace
        setting = Setting(
            capacity_blocks,
            trace.block_tokens,
            self._chains,
            xi_tokens,
            q_hat_tokens,
            cost or self.engine.cost,
            self.engine.max_model_len,
        )
        began = time.perf_counter()
        engine = new_engine(trace, self._chains, capacity_blocks, self.engine, policy.suffix_first)
        state, clock = policy.build(setting), np.zeros(1)
        if plain:
            run(engine, state, clock)
        else:
            engine = packed(engine)
            _compiled_run(engine, state, clock)
        requests = engine.requests
        return Result(
            policy=policy.name,
            xi_tokens=xi_tokens if "xi_tokens" in policy.parameters else None,
            q_hat_tokens=q_hat_tokens if "q_hat_tokens" in policy.parameters else None,
            capacity_blocks=capacity_blocks,
            block_tokens=trace.block_tokens,
            fidelity="timed",
            prompt_tokens=trace.prompt_tokens,
            cached_tokens=requests.cached.copy(),
            recomputed=requests.lost.copy(),
            hit_age=engine.places.hit_age,
            eviction_age=engine.places.eviction_age,
            seconds=time.perf_counter() - began,
            first_token_seconds=requests.first_token - requests.arrival,
            preemptions=requests.preemptions.astype(np.int64),
        )

    def _check(self, capacity_blocks: int) -> None:
        """vLLM does not start with a pool that its longest request does not fit into."""
        tokens, most = self._chains.tokens, self.engine.max_model_len
        request = int(tokens.argmax()) if len(tokens) else NONE
        if most is not None and tokens.max(initial=0) > most:
            raise ValueError(
                f"max_model_len {most:,}: request {request} has {tokens[request]:,} tokens, prompt "
                "and output; vLLM would refuse it or cut it short"
            )
        if capacity_blocks < self.least_capacity:
            raise ValueError(
                f"capacity {capacity_blocks:,} blocks: request {request} alone needs "
                f"{self.least_capacity:,} blocks of {self.trace.block_tokens} tokens; "
                f"use at least that many (--capacity)"
            )


_compiled_run = compiled(run, arrivals, kv_manager, scheduler)


def _online(name: str) -> Policy:
    if name not in POLICIES:
        raise ValueError(f"policy {name!r}: unknown; use one of {', '.join(POLICIES)}")
    policy = POLICIES[name]
    if policy.offline:
        raise ValueError(
            f"policy {name!r}: it has to know the order of the requests to come, which in a timed "
            "replay depends on the policy itself; replay it in order only"
        )
    return policy


def replay_timed(
    trace: Trace,
    policy_name: str,
    capacity_blocks: int,
    *,
    engine: EngineModel,
    xi_tokens: int = 0,
    q_hat_tokens: int = 0,
    cost: Cost | None = None,
) -> Result:
    """Replay a trace under one policy on one engine.

    To compare several policies, make one `TimedReplay` and run each: preparing a trace takes time.
    Raises ValueError for an unknown or offline policy, or a request longer than the pool.
    """
    return TimedReplay(trace, engine).run(
        policy_name, capacity_blocks, xi_tokens=xi_tokens, q_hat_tokens=q_hat_tokens, cost=cost
    )
