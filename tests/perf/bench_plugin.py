"""What the plugin costs a scheduler, against stock vLLM in the same process.

Both arms are vLLM's own classes; in one the plugin is installed with T-LRU in force. They do the
same operations in turns, and the medians of both are compared. Each arm is a fork of this process:
in one process the interpreter's inline caches, which live in the code both arms share, would
thrash between stock's queue and ours, as they never do in an engine. Times are CPU time of the
thread, so that other work on the machine disturbs less.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing import get_context
from statistics import median
from typing import Any

from evictune_policies.engine.knobs import Knobs
from evictune_policies.engine.tlru import TailOptimizedLRU
from vllm.engine.arg_utils import EngineArgs
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager

from demo.constants import ModelSize
from demo.model import cached_model
from tests.perf.entry import entry
from tests.support.vllm_parts import cache_config, cache_manager, make_request

BLOCK = 16
POOLS = (16_384, 131_072)
BOUNDS = {
    "scheduler step": 1.03,
    "get_new_blocks(512)": 1.05,
    "get_new_blocks(1)": 1.15,
    "touch(256)": 1.05,
    "touch(32)": 1.15,
    "free(520)": 1.25,
}
PAIRS = 6  # of processes: where a pool happens to lie in memory is worth some per cent
ROUNDS = 30
SINGLES = 64  # a single get_new_blocks(1) is shorter than reading the clock
STEPS, STEP_ROUNDS, RUNNING = 20, 40, 64
Times = dict[str, list[float]]
Prepare = Callable[[KVCacheManager], None]


def clock() -> float:
    """CPU microseconds of this thread."""
    return time.thread_time_ns() / 1000


def stock(manager: KVCacheManager) -> None:
    """Leave the manager as it is."""


def with_plugin(manager: KVCacheManager, xi_tokens: int = 2048) -> None:
    """Install the plugin, T-LRU in force."""
    policy = TailOptimizedLRU(manager)
    policy.install()
    policy.apply(Knobs("t-lru", xi_tokens, q_hat_tokens=200))


# With xi 0 all is sorted and stock's order comes out, so that both schedulers see the same hits.
with_plugin_in_stock_order = partial(with_plugin, xi_tokens=0)


def prompt(blocks: int, seed: int) -> list[int]:
    """Token ids that fill exactly that many blocks and share nothing with another seed's."""
    return [seed, *range(blocks * BLOCK - 1)]


def finish(manager: KVCacheManager, request: Request) -> float:
    """Free a finished request; returns the time it took."""
    request.status = RequestStatus.FINISHED_STOPPED
    start = clock()
    manager.free(request)
    return clock() - start


def run(manager: KVCacheManager, blocks: int, seed: int) -> Request:
    """Allocate a request of that many blocks, all of them new."""
    request = make_request(prompt(blocks, seed), BLOCK)
    request.num_computed_tokens = 0
    assert manager.allocate_slots(request, request.num_tokens) is not None
    return request


def pool_round(manager: KVCacheManager, seed: int) -> Iterator[tuple[str, float]]:
    """Each operation once, on a pool full of cached blocks; leaves it full again."""
    pool = manager.block_pool
    request = run(manager, 520, seed)
    (group,) = manager.coordinator.single_type_managers
    blocks = list(group.req_to_blocks[request.request_id])
    yield "free(520)", finish(manager, request)
    start = clock()
    pool.touch(blocks[:256])
    yield "touch(256)", clock() - start
    pool.free_blocks(reversed(blocks[:256]))
    parts = [blocks[first : first + 32] for first in range(0, 256, 32)]
    start = clock()
    for part in parts:
        pool.touch(part)
    yield "touch(32)", (clock() - start) / len(parts)
    pool.free_blocks(reversed(blocks[:256]))
    start = clock()
    taken = pool.get_new_blocks(512)
    yield "get_new_blocks(512)", clock() - start
    pool.free_blocks(taken)
    finish(manager, run(manager, 512 + SINGLES, seed + 1))
    start = clock()
    singles = [pool.get_new_blocks(1) for _ in range(SINGLES)]
    yield "get_new_blocks(1)", (clock() - start) / SINGLES
    for single in singles:
        pool.free_blocks(single)


def scatter(manager: KVCacheManager) -> None:
    """Bring the free blocks into the random order they have in an engine that ran for long.

    In a fresh pool, blocks that are neighbours in the queue are neighbours in memory, and which
    arm profits from that depends on which blocks it hands out.
    """
    pool = manager.block_pool
    taken = pool.get_new_blocks(pool.get_num_free_blocks())
    random.Random(3).shuffle(taken)
    pool.free_blocks(taken)


def full_pool(blocks: int, prepare: Prepare) -> KVCacheManager:
    """A manager whose every block holds what finished requests left."""
    manager = cache_manager(blocks, BLOCK)
    prepare(manager)
    scatter(manager)
    for seed in range(blocks // 256 + 2):
        finish(manager, run(manager, 256, -1 - seed))
    return manager


Round = Callable[[int], Iterator[tuple[str, float]]]


class Arm:
    """One of the two, in a process of its own.

    Args:
        make: Called in that process; returns what does one round.
    """

    def __init__(self, make: Callable[[], Round]) -> None:
        context = get_context("fork")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=self._serve, args=(make, theirs), daemon=True)
        self._process.start()
        theirs.close()  # so that its end, should it fail, is noticed
        assert self._connection.recv() == "ready"

    @staticmethod
    def _serve(make: Callable[[], Round], connection: Any) -> None:
        one_round = make()
        gc.collect()
        gc.disable()
        connection.send("ready")
        while (seed := connection.recv()) is not None:
            connection.send(list(one_round(seed)))

    def round(self, seed: int) -> list[tuple[str, float]]:
        """Do one round; returns what took how long."""
        self._connection.send(seed)
        times: list[tuple[str, float]] = self._connection.recv()
        return times

    def end(self) -> None:
        """End the process."""
        self._connection.send(None)
        self._process.join()


def in_turns(make: Callable[[Prepare], Round], ours: Prepare, rounds: int) -> tuple[Times, Times]:
    """Run pairs of stock and ours round by round, each first as often as the other."""
    times: tuple[Times, Times] = ({}, {})
    for _ in range(PAIRS):
        arms = [Arm(partial(make, prepare)) for prepare in (stock, ours)]
        for number in range(-3, rounds):  # the first three warm up
            for place in (0, 1) if number % 2 else (1, 0):
                for name, spent in arms[place].round(1_000_000 + 2 * number):
                    if number >= 0:
                        times[place].setdefault(name, []).append(spent)
        for arm in arms:
            arm.end()
    return times


def measure_pool(blocks: int) -> tuple[Times, Times]:
    """Times of the pool's operations: stock, ours."""

    def make(prepare: Prepare) -> Round:
        return partial(pool_round, full_pool(blocks, prepare))

    return in_turns(make, with_plugin, ROUNDS)


class ModelLess:
    """A real scheduler whose model answers at once, kept busy with conversations."""

    def __init__(self, blocks: int, prepare: Prepare) -> None:
        config = EngineArgs(
            model=str(cached_model(ModelSize(layers=1, hidden=64, intermediate=64, heads=1))),
            dtype="float32",
            max_model_len=4096,
            max_num_seqs=RUNNING,
            max_num_batched_tokens=4096,
            enable_prefix_caching=True,
            async_scheduling=False,
        )
        vllm_config = config.create_engine_config()
        vllm_config.cache_config.num_gpu_blocks = blocks + 1
        self.scheduler = Scheduler(
            vllm_config,
            cache_config(blocks + 1, BLOCK),
            StructuredOutputManager(vllm_config),
            block_size=BLOCK,
            hash_block_size=BLOCK,
        )
        manager = self.scheduler.kv_cache_manager
        prepare(manager)
        scatter(manager)
        for seed in range(blocks // 256 + 2):
            finish(manager, run(manager, 256, -1 - seed))
        self.random = random.Random(5)
        self.histories = [prompt(40, 10_000_000 + number) for number in range(4 * RUNNING)]

    def turn(self) -> Request:
        """The next turn of some conversation: its history, and a new question."""
        history = self.random.choice(self.histories)
        if len(history) > 3000:
            del history[900:]
        history += [self.random.randrange(1000) for _ in range(100)]
        return make_request(history, BLOCK, max_tokens=32)

    def round(self, _seed: int) -> Iterator[tuple[str, float]]:
        """Some steps, with as many requests arriving as end."""
        spent = 0.0
        for _ in range(STEPS):
            while len(self.scheduler.requests) < RUNNING:
                self.scheduler.add_request(self.turn())
            start = clock()
            scheduled = self.scheduler.schedule()
            spent += clock() - start
            answer = self.answer(scheduled)
            start = clock()
            self.scheduler.update_from_output(scheduled, answer)
            spent += clock() - start
        yield "scheduler step", spent / STEPS

    def answer(self, scheduled: Any) -> ModelRunnerOutput:
        """One token for every request whose prompt is done."""
        names = list(scheduled.num_scheduled_tokens)
        done = [
            (request := self.scheduler.requests[name]).num_computed_tokens >= request.num_tokens
            for name in names
        ]
        return ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: place for place, name in enumerate(names)},
            sampled_token_ids=[[7] if ready else [] for ready in done],
        )


def measure_steps(blocks: int) -> tuple[Times, Times]:
    """Times of a scheduler step: stock, ours."""

    def make(prepare: Prepare) -> Round:
        return ModelLess(blocks, prepare).round

    return in_turns(make, with_plugin_in_stock_order, STEP_ROUNDS)


def results() -> Iterator[dict[str, Any]]:
    """One entry for each operation and pool size."""
    for blocks in POOLS:
        for peers, ours in (measure_pool(blocks), measure_steps(blocks)):
            for name, times in peers.items():
                peer, our = median(times), median(ours[name])
                label = f"{name}, {blocks:,} blocks"
                yield entry(label, "stock vLLM", peer, our, BOUNDS[name], "µs")
