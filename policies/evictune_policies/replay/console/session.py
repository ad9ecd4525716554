"""A trace made ready, and replays of it with progress shown: what the commands work with."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from evictune_policies.algorithms.catalog import Cost
from evictune_policies.replay.console.progress import Progress
from evictune_policies.replay.knobs import Knobs
from evictune_policies.replay.simulation.result import Result
from evictune_policies.replay.traces.trace import Trace


def read(options: argparse.Namespace, progress: Progress) -> Trace:
    """Read the trace that the command line names.

    Raises TraceError, or ValueError for assumptions or a block size that cannot be used.
    """
    with progress.over():
        progress.step(f"reading {options.trace}")
        from evictune_policies.replay.traces.assumptions import DEFAULTS, Assumptions
        from evictune_policies.replay.traces.reading import read_trace

        assumed = Assumptions(
            conversations_per_second=options.conversations_per_second,
            think_seconds=options.think,
            seed=options.seed,
            block_tokens=options.block_tokens or DEFAULTS.block_tokens,
            share_prompts=options.share_prompts,
        )
        trace = read_trace(Path(options.trace), options.format, assumed)
        return trace.with_block_tokens(options.block_tokens or trace.block_tokens)


class Prepared(Protocol):
    """What a replay makes of a trace before it runs: `OrderReplay` or `TimedReplay`."""

    trace: Trace

    def run(
        self,
        policy_name: str,
        capacity_blocks: int,
        *,
        xi_tokens: int,
        q_hat_tokens: int,
        cost: Cost,
    ) -> Result:
        """Replay under one policy."""


class Session:
    """Replays; the preparation of the latest traces is kept.

    cost: what policies that weigh it believe a prefill to cost.
    """

    KEPT = 2

    def __init__(
        self, progress: Progress, prepare: Callable[[Trace], Prepared], cost: Cost | None = None
    ) -> None:
        self._progress = progress
        self._cost = cost or Cost()
        self._prepare = prepare
        self._prepared: list[Prepared] = []

    def replay(self, trace: Trace, knobs: Knobs, capacity_blocks: int) -> Result:
        """One replay. Raises ValueError where a request does not fit into the pool."""
        self._progress.step(f"replaying {trace.name}: {knobs}, {capacity_blocks:,} blocks")
        return self._of(trace).run(
            knobs.policy,
            capacity_blocks,
            xi_tokens=knobs.xi_tokens or 0,
            q_hat_tokens=knobs.q_hat_tokens or 0,
            cost=self._cost,
        )

    def _of(self, trace: Trace) -> Prepared:
        for prepared in self._prepared:
            if prepared.trace is trace:
                return prepared
        self._prepared = [*self._prepared, self._prepare(trace)][-self.KEPT :]
        return self._prepared[-1]


def preparation(options: argparse.Namespace) -> Callable[[Trace], Prepared]:
    """What the fidelity asked for needs of a trace.

    Raises ValueError where requests are to take time and the command line does not say how long.
    """
    # Either brings in the compiler, which takes its time.
    if options.fidelity == "order":
        from evictune_policies.replay.simulation.order import OrderReplay

        return OrderReplay
    if options.prefill is None:
        raise ValueError(
            "--prefill: a timed replay needs the model's speed: write SECONDS_PER_TOKEN[,QUADRATIC]"
        )
    from evictune_policies.replay.simulation.engine_model import EngineModel
    from evictune_policies.replay.simulation.timed import TimedReplay

    engine = EngineModel(
        max_num_batched_tokens=options.max_num_batched_tokens,
        max_num_seqs=options.max_num_seqs,
        step_seconds=options.step,
        cost=options.prefill,
    )
    return lambda trace: TimedReplay(trace, engine)
