"""The timed replay against vLLM's own Scheduler and KVCacheManager, step by step.

Both get the same requests at the same times. After every scheduling they must agree on who computes
how many tokens, who runs and who waits in which order, which block is whose, and which blocks have
content. Since blocks are compared by number, so is the order of evictions: a block that is handed
out is the one that was next to go.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from evictune_policies.algorithms.catalog import POLICIES, Cost, Setting
from evictune_policies.algorithms.pool import NONE
from evictune_policies.engine.knobs import Knobs
from evictune_policies.engine.tlru import TailOptimizedLRU
from evictune_policies.replay.arrivals import arrive
from evictune_policies.replay.engine import (
    FINISHED,
    RUNNING,
    SCHEDULED,
    Engine,
    engine_chains,
    new_engine,
)
from evictune_policies.replay.engine_model import EngineModel
from evictune_policies.replay.scheduler import schedule, step_seconds, update
from vllm.v1.core.kv_cache_manager import KVCacheManager

from tests.support.timed_workloads import BLOCK, WORKLOADS, Turn, trace_of
from tests.support.vllm_engine import VllmEngine

SEEDS = range(4)
# Binary fractions: sums are exact. Prompts of up to 60 tokens take several steps.
MODELS = {
    "small": EngineModel(16, 4, step_seconds=1 / 4, cost=Cost(2**-6, 2**-12)),
    "large": EngineModel(64, 8, step_seconds=1 / 8, cost=Cost(2**-8, 2**-14)),
    "greedy": EngineModel(24, 6, False, step_seconds=1 / 4, cost=Cost(2**-6)),
    "watermark": EngineModel(16, 6, watermark=0.1, step_seconds=1 / 4, cost=Cost(2**-6)),
}
POOLS = (26, 40, 90)  # the longest request takes 25 blocks
XI, Q_HAT = 24, 6


def stock(manager: KVCacheManager) -> None:
    """Leave the manager as it is."""


def with_plugin(manager: KVCacheManager) -> None:
    """The project's plugin, T-LRU in force."""
    policy = TailOptimizedLRU(manager)
    policy.install()
    policy.apply(Knobs("t-lru", XI, Q_HAT))


POLICIES_OF = {"prefix-lru": stock, "t-lru": with_plugin}
Prepare = Callable[[KVCacheManager], None]


class Lockstep:
    """The simulation and vLLM's classes with the same requests.

    Attributes:
        seen: What the run came across: a test that sees no preemptions says nothing about them.
    """

    def __init__(self, turns: list[Turn], known: bool, policy: str, pool: int, model: EngineModel):
        trace = trace_of(turns, known)
        chains = engine_chains(trace)
        self.turns = turns
        self.model = model
        self.ours: Engine = new_engine(
            trace, chains, pool, model, suffix_first=POLICIES[policy].suffix_first
        )
        self.state = POLICIES[policy].build(Setting(pool, BLOCK, chains, XI, Q_HAT, model.cost))
        self.vllm = VllmEngine(turns, pool, model, POLICIES_OF[policy])
        self.to_come = {
            index: turn.arrival for index, turn in enumerate(turns) if np.isnan(turn.think)
        }
        self.now = 0.0
        self.seen = {"hits": 0, "evictions": 0, "preemptions": 0, "chunks": 0, "copies": 0}

    def run(self) -> None:
        """Until all requests have finished."""
        while len(self.vllm.finished) < len(self.turns):
            for index in sorted(self.to_come, key=lambda index: (self.to_come[index], index)):
                if self.to_come[index] <= self.now:
                    self.vllm.add(index)
                    del self.to_come[index]
            if not self.vllm.busy:
                self.now = min(self.to_come.values())
                continue
            self.step()
        assert self.ours.counts[FINISHED] == len(self.turns)
        for index in range(len(self.turns)):
            assert self.ours.requests.cached[index] == self.vllm.cached[index]

    def step(self) -> None:
        """One step of both."""
        arrive(self.ours, self.now)
        before = self.ours.pool.content.copy()
        schedule(self.ours, self.state, self.now)
        work = self.vllm.schedule()
        self.compare(work)
        self.note(work, before)
        duration = step_seconds(self.ours)
        assert duration == self.seconds(work)
        self.now += duration
        finished = set(self.vllm.finished)
        self.vllm.update()
        update(self.ours, self.state, self.now)
        for ended in self.vllm.finished - finished:
            assert self.ours.requests.finish[ended] == self.now
            for index, turn in enumerate(self.turns):
                if turn.previous == ended and not np.isnan(turn.think):
                    self.to_come[index] = self.now + turn.think

    def seconds(self, work: list[tuple[int, int, int]]) -> float:
        """How long the model says a step takes."""
        linear, quadratic = self.model.cost.linear, self.model.cost.quadratic
        each = (linear * n + quadratic * n * (n + 2 * before) / 2 for _, n, before in work)
        return self.model.step_seconds + sum(each)

    def compare(self, work: list[tuple[int, int, int]]) -> None:
        """Everything that can be seen after scheduling."""
        ours, requests = self.ours, self.ours.requests
        scheduled = ours.scheduled[: ours.counts[SCHEDULED]]
        tokens = ours.scheduled_tokens[: ours.counts[SCHEDULED]]
        assert work == [
            (index, n, requests.computed[index]) for index, n in zip(scheduled, tokens, strict=True)
        ]
        assert list(ours.running[: ours.counts[RUNNING]]) == self.vllm.running
        assert queue_of(ours) == self.vllm.waiting
        for index in self.vllm.running:
            slot = requests.slot[index]
            assert list(ours.table[slot, : ours.held[slot]]) == self.vllm.blocks_of(index)
        for index in (*self.vllm.running, *self.vllm.waiting):
            assert requests.preemptions[index] == self.vllm.preemptions_of(index)
        assert list(ours.pool.content != NONE) == self.vllm.cached_blocks

    def note(self, work: list[tuple[int, int, int]], before: np.ndarray) -> None:
        """Count what happened."""
        pool = self.ours.pool
        self.seen["evictions"] += np.count_nonzero((before != NONE) & (before != pool.content))
        self.seen["chunks"] += sum(
            before > 0 and before + n < len(self.turns[index].prompt) for index, n, before in work
        )
        self.seen["copies"] = max(self.seen["copies"], np.count_nonzero(pool.next_copy != NONE))
        self.seen["preemptions"] = int(self.ours.requests.preemptions.sum())
        self.seen["hits"] = int(self.ours.requests.cached.clip(0).sum())


def queue_of(engine: Engine) -> list[int]:
    """The queue, head first."""
    queue = []
    request = engine.waiting[len(engine.waiting) - 2]
    while request != NONE:
        queue.append(int(request))
        request = engine.waiting[request]
    return queue


@pytest.mark.parametrize("policy", POLICIES_OF)
@pytest.mark.parametrize("workload", WORKLOADS)
def test_every_step_is_that_of_vllm(workload: str, policy: str) -> None:
    seen: dict[str, int] = {}
    for seed in SEEDS:
        for number, model in enumerate(MODELS.values()):
            pool = POOLS[(seed + number) % len(POOLS)]
            turns = WORKLOADS[workload](seed)
            # Only where nobody repeats an output, it does not matter that it is not known.
            known = workload != "shared prompts" or seed % 2 == 0
            pair = Lockstep(turns, known, policy, pool, model)
            pair.run()
            for name, count in pair.seen.items():
                seen[name] = seen.get(name, 0) + count
    assert min(seen.values()) > 0, f"too little pressure to say anything: {seen}"
