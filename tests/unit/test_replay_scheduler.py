"""vLLM's odd corners in the simulated scheduler, one at a time. Blocks of 4 tokens."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from evictune_policies.algorithms.catalog import POLICIES, Cost, Setting
from evictune_policies.algorithms.pool import NONE
from evictune_policies.replay.simulation.arrivals import arrive
from evictune_policies.replay.simulation.engine import (
    FREE,
    RUNNING,
    SCHEDULED,
    engine_chains,
    new_engine,
)
from evictune_policies.replay.simulation.engine_model import EngineModel
from evictune_policies.replay.simulation.scheduler import schedule, step_seconds, update

from tests.support.timed_workloads import BLOCK, Turn, trace_of

A, B, C, D = ((name,) * BLOCK for name in range(4))  # the tokens of one block


class Driver:
    """An engine under stock order, driven by hand; a step takes a second."""

    def __init__(
        self,
        turns: Sequence[Turn],
        capacity: int = 20,
        tokens: int = 64,
        seqs: int = 4,
        outputs_known: bool = True,
    ) -> None:
        trace = trace_of(list(turns), outputs_known)
        chains = engine_chains(trace)
        model = EngineModel(tokens, seqs, step_seconds=1.0, cost=Cost(0.0))
        self.engine = new_engine(trace, chains, capacity, model, suffix_first=True)
        self.state = POLICIES["prefix-lru"].build(Setting(capacity, BLOCK, chains))
        self.requests = self.engine.requests
        self.now = 0.0

    def schedule(self) -> list[tuple[int, int]]:
        """Who computes how many tokens."""
        arrive(self.engine, self.now)
        schedule(self.engine, self.state, self.now)
        count = self.engine.counts[SCHEDULED]
        rows = self.engine.rows
        return list(zip(rows.scheduled[:count].tolist(), rows.tokens[:count].tolist(), strict=True))

    def step(self) -> list[tuple[int, int]]:
        """Schedule and compute."""
        work = self.schedule()
        self.now += step_seconds(self.engine)
        update(self.engine, self.state, self.now)
        return work

    def steps(self, count: int) -> None:
        for _ in range(count):
            self.step()

    @property
    def running(self) -> list[int]:
        """In order of admission."""
        running: list[int] = self.engine.rows.running[: self.engine.counts[RUNNING]].tolist()
        return running


def test_a_repeat_of_whole_blocks_computes_its_last_one_again_and_leaves_a_copy() -> None:
    driver = Driver([Turn(A + B, (9,)), Turn(A + B, (9,), arrival=1.0)])
    driver.steps(2)
    assert driver.requests.cached.tolist() == [0, BLOCK]
    content = driver.engine.pool.content
    assert sorted(content[content != NONE].tolist()) == [0, 1, 1]


def test_blocks_of_the_same_step_are_hits() -> None:
    driver = Driver([Turn(A + B + C, (9,)), Turn(A + B + D, (9,))])
    assert driver.schedule() == [(0, 3 * BLOCK), (1, BLOCK)]


def test_who_comes_during_a_chunked_prefill_hits_only_what_is_done() -> None:
    prompt = A + B + C + D
    driver = Driver([Turn(prompt, (9,)), Turn(prompt, (9,), arrival=1.0)], tokens=6)
    assert driver.step() == [(0, 6)]  # A, and half of B
    assert driver.step() == [(0, 6)]
    assert driver.step() == [(0, 4), (1, 2)]
    assert driver.requests.cached[1] == 3 * BLOCK  # D was allocated too, but is the last block


def test_the_last_output_token_is_never_cached() -> None:
    driver = Driver([Turn(A, (5, 6, 7, 8))])
    driver.steps(4)
    content = driver.engine.pool.content
    assert content[content != NONE].tolist() == [0]
    assert driver.engine.counts[FREE] == 20


def test_outputs_are_hits_for_whoever_goes_on_from_them() -> None:
    first = Turn(A, (5, 6, 7, 8, 9))
    driver = Driver([first, Turn((*first.tokens, 1, 2), (3,), previous=0, think=2.0)])
    driver.steps(5)
    assert driver.requests.arrival[1] == 7.0  # when the fifth token came, and the think time
    driver.now = 7.0
    driver.step()
    assert driver.requests.cached[1] == 2 * BLOCK


def test_unknown_outputs_are_no_hits_but_take_room() -> None:
    first = Turn(A, (5, 6, 7, 8, 9))
    turns = [first, Turn((*first.tokens, 1, 2), (3,), arrival=9.0)]
    driver = Driver(turns, outputs_known=False)
    driver.steps(5)
    content = driver.engine.pool.content
    assert len(content[content != NONE]) == 2
    driver.now = 9.0
    driver.step()
    assert driver.requests.cached[1] == BLOCK


def test_who_came_last_is_preempted_goes_to_the_head_and_nobody_is_admitted() -> None:
    long = (1,) * 9
    turns = [Turn(A + B, long), Turn(C + D, long), Turn((7,), (7,), arrival=1.0)]
    driver = Driver(turns, capacity=5)
    driver.step()
    assert driver.running == [0, 1]  # two blocks each; one is free
    # Each needs a third block: the second request finds none, and is the last itself.
    assert driver.step() == [(0, 1)]
    assert driver.running == [0]
    assert driver.requests.preemptions.tolist() == [0, 1, 0]
    assert driver.requests.behind[1] == 2, "before the one that has waited longer"
    # It does not fit, and the small one behind it has to wait as well, until the first has ended.
    driver.steps(7)
    assert driver.running == []
    # The first took one block more meanwhile: D's, the last of its chain. C is still there.
    assert driver.step() == [(1, BLOCK + 1), (2, 1)]
    assert driver.requests.cached[1] == 0, "what it found at first counts"


def test_the_whole_prompt_has_to_fit() -> None:
    turns = [Turn(A + B, (1,) * 20), Turn(C + D + A, (1,))]
    driver = Driver(turns, capacity=4, tokens=12)
    assert driver.step() == [(0, 8)]
    assert driver.running == [0]


def test_time_to_first_token_includes_the_queue() -> None:
    driver = Driver([Turn(A + B, (1, 1)), Turn(C, (1,))], seqs=1)
    driver.steps(3)
    assert driver.requests.first_token.tolist() == [1.0, 3.0]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"max_num_seqs": 0}, "max_num_seqs 0"),
        ({"max_num_batched_tokens": 7, "max_num_seqs": 8}, "max_num_batched_tokens 7"),
        ({"watermark": 1.0}, "watermark 1.0"),
        ({"step_seconds": -1.0}, "step_seconds -1"),
        ({"step_seconds": 0.0, "cost": Cost(0.0)}, "some time"),
    ],
)
def test_engines_that_cannot_be_are_refused(options: dict[str, float], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        EngineModel(**options)  # type: ignore[arg-type]
