"""The timed replay against vLLM's own Scheduler and KVCacheManager, step by step.

Both get the same requests at the same times. After every scheduling they must agree on who computes
how many tokens, who runs and who waits in which order, which block is whose, and which blocks have
content. Since blocks are compared by number, so is the order of evictions: a block that is handed
out is the one that was next to go.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from evictune_policies.algorithms.catalog import POLICIES, Cost, Setting
from evictune_policies.algorithms.pool import NONE
from evictune_policies.engine.knobs import Knobs
from evictune_policies.engine.tlru import TailOptimizedLRU
from evictune_policies.replay.simulation.arrivals import arrive
from evictune_policies.replay.simulation.engine import (
    FINISHED,
    FIRST_WAITING,
    RUNNING,
    SCHEDULED,
    Engine,
    engine_chains,
    new_engine,
)
from evictune_policies.replay.simulation.engine_model import EngineModel
from evictune_policies.replay.simulation.scheduler import schedule, step_seconds, update
from evictune_policies.replay.simulation.timed import replay_timed
from vllm.v1.core.kv_cache_manager import KVCacheManager

from tests.support.timed_workloads import BLOCK, WORKLOADS, Turn, trace_of
from tests.support.vllm_engine import VllmEngine

SEEDS = range(4)
# Binary fractions: sums are exact. Prompts of up to 60 tokens take several steps.
MODELS = [
    EngineModel(16, 4, step_seconds=1 / 4, cost=Cost(2**-6, 2**-12), max_model_len=512),
    EngineModel(64, 8, step_seconds=1 / 8, cost=Cost(2**-8, 2**-14), max_model_len=512),
    EngineModel(24, 6, False, step_seconds=1 / 4, cost=Cost(2**-6), max_model_len=512),
    EngineModel(16, 6, True, 0.1, step_seconds=1 / 4, cost=Cost(2**-6), max_model_len=512),
]
POOLS = (26, 40, 90)  # the longest request takes 25 blocks
# (xi, q_hat): a part is protected, all, all, a part; nothing of any request here; nothing at all.
KNOBS = ((24, 6), (0, 6), (6, 24), (45, 10), (130, 0), (10**6, 6))


def prepare(manager: KVCacheManager, policy: str, xi: int, q_hat: int) -> None:
    """Leave the manager stock, or put T-LRU in force with the project's plugin."""
    if policy == "t-lru":
        plugin = TailOptimizedLRU(manager)
        plugin.install()
        plugin.apply(Knobs("t-lru", xi, q_hat))


class Lockstep:
    """The simulation and vLLM's classes with the same requests.

    Args:
        turns: The requests.
        known: Whether the trace knows the outputs' tokens.
        policy: "prefix-lru" or "t-lru".
        knobs: xi and q_hat.
        pool: Blocks.
        model: The engine.

    Attributes:
        seen: What the run came across: a test that sees no preemptions says nothing about them.
    """

    def __init__(
        self,
        turns: list[Turn],
        known: bool,
        policy: str,
        knobs: tuple[int, int],
        pool: int,
        model: EngineModel,
    ) -> None:
        trace = trace_of(turns, known)
        chains = engine_chains(trace)
        self.turns = turns
        self.model = model
        self.ours: Engine = new_engine(
            trace, chains, pool, model, suffix_first=POLICIES[policy].suffix_first
        )
        setting = Setting(pool, BLOCK, chains, *knobs, model.cost, model.max_model_len)
        self.state = POLICIES[policy].build(setting)
        self.vllm = VllmEngine(turns, pool, model, lambda manager: prepare(manager, policy, *knobs))
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
        scheduled = ours.rows.scheduled[: ours.counts[SCHEDULED]]
        tokens = ours.rows.tokens[: ours.counts[SCHEDULED]]
        assert work == [
            (index, n, requests.computed[index]) for index, n in zip(scheduled, tokens, strict=True)
        ]
        assert list(ours.rows.running[: ours.counts[RUNNING]]) == self.vllm.running
        assert queue_of(ours) == self.vllm.waiting
        for index in self.vllm.running:
            row = requests.row[index]
            assert list(ours.table[row, : ours.rows.held[row]]) == self.vllm.blocks_of(index)
        for index in (*self.vllm.running, *self.vllm.waiting):
            assert requests.preemptions[index] == self.vllm.preemptions_of(index)
        assert list(ours.pool.content != NONE) == self.vllm.cached_blocks

    def note(self, work: list[tuple[int, int, int]], before: np.ndarray) -> None:
        """Count what happened."""
        pool = self.ours.pool
        self.seen["evictions"] += int(np.sum((before != NONE) & (before != pool.content)))
        self.seen["chunks"] += sum(
            done > 0 and done + n < len(self.turns[index].prompt) for index, n, done in work
        )
        self.seen["copies"] += int(np.sum(pool.next_copy != NONE))
        self.seen["preemptions"] = int(self.ours.requests.preemptions.sum())
        self.seen["hits"] = int(self.ours.requests.cached.clip(0).sum())


def queue_of(engine: Engine) -> list[int]:
    """The queue, head first."""
    queue = []
    request = engine.counts[FIRST_WAITING]
    while request != NONE:
        queue.append(int(request))
        request = engine.requests.behind[request]
    return queue


def pairs(workload: str, policy: str) -> Iterator[Lockstep]:
    """All combinations of seeds and engines, each with some knobs and some pool."""
    for seed in SEEDS:
        for number, model in enumerate(MODELS):
            turns = WORKLOADS[workload](seed)
            # Only where nobody repeats an output, it does not matter that it is not known.
            known = workload != "shared prompts" or seed % 2 == 0
            knobs = KNOBS[(seed * len(MODELS) + number) % len(KNOBS)]
            yield Lockstep(turns, known, policy, knobs, POOLS[(seed + number) % len(POOLS)], model)


@pytest.mark.parametrize("policy", ["prefix-lru", "t-lru"])
@pytest.mark.parametrize("workload", WORKLOADS)
def test_every_step_is_that_of_vllm(workload: str, policy: str) -> None:
    seen: dict[str, int] = {}
    for pair in pairs(workload, policy):
        pair.run()
        for name, count in pair.seen.items():
            seen[name] = seen.get(name, 0) + count
    assert min(seen.values()) > 0, f"too little pressure to say anything: {seen}"


@pytest.mark.parametrize("policy", ["prefix-lru", "t-lru"])
def test_the_compiled_replay_finds_what_vllm_finds(policy: str) -> None:
    for workload, make in WORKLOADS.items():
        turns, model = make(100), MODELS[0]
        pair = Lockstep(turns, True, policy, KNOBS[0], POOLS[0], model)
        pair.run()
        result = replay_timed(
            trace_of(turns),
            policy,
            POOLS[0],
            engine=model,
            xi_tokens=KNOBS[0][0],
            q_hat_tokens=KNOBS[0][1],
        )
        requests = pair.ours.requests
        assert result.preemptions is not None
        assert list(result.cached_tokens) == [pair.vllm.cached[n] for n in range(len(turns))]
        assert list(result.preemptions) == [pair.vllm.preemptions_of(n) for n in range(len(turns))]
        assert result.first_token_seconds is not None
        expected = requests.first_token - requests.arrival
        assert list(result.first_token_seconds) == list(expected), workload


def test_t_lru_decides_otherwise_than_stock() -> None:
    """Else the two policies' tests would be one."""
    cached = {}
    for policy in ("prefix-lru", "t-lru"):
        pair = Lockstep(WORKLOADS["floods"](1), True, policy, KNOBS[0], POOLS[1], MODELS[0])
        pair.run()
        cached[policy] = pair.vllm.cached
    assert cached["prefix-lru"] != cached["t-lru"]
