"""The timed replay as a whole: its results, what it refuses, and that it agrees with order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from evictune_policies.algorithms.catalog import POLICIES, Cost
from evictune_policies.replay.simulation.engine_model import EngineModel
from evictune_policies.replay.simulation.order import OrderReplay
from evictune_policies.replay.simulation.timed import TimedReplay, replay_timed

from tests.support.timed_workloads import WORKLOADS, Turn, trace_of

# ET-LRU learns from how long people are silent, which is not the same where requests take time.
ONLINE = [name for name, policy in POLICIES.items() if not policy.offline and name != "et-lru"]
# A prompt fits into a step: some policies' queues depend on how many blocks are asked for at once.
MODEL = EngineModel(256, 4, step_seconds=2**-10, cost=Cost(0.0))


@pytest.mark.parametrize("policy", ONLINE)
def test_one_request_at_a_time_is_the_replay_in_order(policy: str) -> None:
    for number, make in enumerate(WORKLOADS.values()):
        trace = trace_of(make(number, 80))
        # So far apart that each has ended; not in step with any time to live.
        n = trace.requests
        trace = replace(
            trace, arrival=np.arange(n, dtype=np.float64) * 70, think=np.full(n, np.nan)
        )
        for capacity in (26, 50):
            timed = TimedReplay(trace, MODEL).run(
                policy, capacity, xi_tokens=24, q_hat_tokens=6, cost=Cost(), plain=True
            )
            order = OrderReplay(trace).run(
                policy, capacity, xi_tokens=24, q_hat_tokens=6, cost=Cost(), plain=True
            )
            assert list(timed.cached_tokens) == list(order.cached_tokens)
            assert list(timed.recomputed) == list(order.recomputed)


def test_a_prompt_takes_what_the_cost_says() -> None:
    cost = Cost(2**-6, 2**-12)
    turns = [Turn((1,) * 40, (2,)), Turn((1,) * 32 + (3,) * 8, (2,), arrival=50.0)]
    engine = EngineModel(64, 4, step_seconds=0.25, cost=cost)
    result = TimedReplay(trace_of(turns), engine).run("prefix-lru", 30, plain=True)
    assert result.cached_tokens.tolist() == [0, 32]
    assert result.first_token_seconds is not None
    assert result.first_token_seconds.tolist() == [
        0.25 + 40 * 2**-6 + 40 * 40 / 2 * 2**-12,
        0.25 + 8 * 2**-6 + 8 * (8 + 2 * 32) / 2 * 2**-12,
    ]
    assert result.fidelity == "timed"


def test_more_load_means_more_waiting() -> None:
    trace = trace_of(WORKLOADS["floods"](3, 60))
    engine = EngineModel(16, 4, step_seconds=0.25, cost=Cost(2**-6))
    means = []
    for factor in (0.25, 1, 4):
        result = TimedReplay(trace.sped_up(factor), engine).run("prefix-lru", 40, plain=True)
        assert result.first_token_seconds is not None
        means.append(result.first_token_seconds.mean())
    assert means == sorted(means)


@pytest.mark.parametrize(
    ("policy", "capacity", "model", "named"),
    [
        ("no-such", 40, MODEL, "'no-such'.*prefix-lru"),
        ("belady", 40, MODEL, "'belady'.*order"),
        ("prefix-lru", 3, MODEL, "capacity 3.*request 1 .*11 blocks"),
        ("prefix-lru", 40, replace(MODEL, max_model_len=41), "max_model_len 41.*request 1"),
    ],
)
def test_what_cannot_be_replayed_is_refused(
    policy: str, capacity: int, model: EngineModel, named: str
) -> None:
    trace = trace_of([Turn((1, 2), (3,)), Turn((1,) * 40, (2, 2), arrival=1.0)])
    with pytest.raises(ValueError, match=named):
        replay_timed(trace, policy, capacity, engine=model)


def test_an_empty_trace_is_replayed() -> None:
    nothing = TimedReplay(trace_of([]), MODEL).run("prefix-lru", 3, plain=True)
    assert nothing.requests == 0
