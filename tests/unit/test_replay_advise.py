"""Advice: verdicts, the order of objectives, the search, and what the text claims.

The replays here are made up, so that each verdict has its case; the real ones are in
tests/integration/test_replay_command.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest
from evictune_policies.algorithms.catalog import Cost
from evictune_policies.replay.advise import Advice, Verdict, advise, growth, most_replays
from evictune_policies.replay.console.advice_text import notes, told, verdict
from evictune_policies.replay.goal import Goal, score
from evictune_policies.replay.knobs import Knobs
from evictune_policies.replay.simulation.result import Int64, Result
from evictune_policies.replay.traces.trace import Trace

BLOCK = 16
PROMPT = 10_000
HALF = 500
GOAL = Goal(slo_seconds=0.4, quantile=0.9, cost=Cost(1e-4))  # xi is 4,000 tokens


def trace(turns_grow_by: int = 300, requests: int = 2 * HALF) -> Trace:
    """Requests of one conversation; no contents, because nothing here looks at them."""
    indices = np.arange(requests)
    prompt = PROMPT + turns_grow_by * indices
    return Trace(
        name="made up",
        block_tokens=BLOCK,
        arrival=indices.astype(float),
        prompt_tokens=prompt,
        output_tokens=np.zeros(requests, np.int64),
        starts=np.zeros(requests + 1, np.int64),
        contents=np.zeros(0, np.int32),
        known_tokens=np.zeros(requests, np.int64),
        parent=np.zeros(0, np.int32),
        depth=np.zeros(0, np.int32),
        previous=(indices - 1).astype(np.int32),
        think=np.full(requests, np.nan),
        tenant=np.zeros(requests, np.int32),
        final=indices == requests - 1,
    )


def uncached(late: int, excess: int = 100, rest: int = 500, requests: int = HALF) -> Int64:
    """Of a half: so many requests above xi by `excess`, the others at `rest`."""
    tokens = np.full(requests, rest, np.int64)
    tokens[:late] = GOAL.xi_tokens + excess
    return tokens


Half = Callable[[Knobs], Int64]


def replayed(first: Half, other: Half) -> Callable[[Trace, Knobs], Result]:
    """A replay that has these outcomes on the two halves."""

    def replay(part: Trace, knobs: Knobs) -> Result:
        tokens = np.concatenate([first(knobs), other(knobs)])[: part.requests]
        prompt = np.maximum(part.prompt_tokens, tokens)
        none = np.zeros(1, np.int64)
        return Result(
            policy=knobs.policy,
            xi_tokens=knobs.xi_tokens,
            q_hat_tokens=knobs.q_hat_tokens,
            capacity_blocks=100,
            block_tokens=BLOCK,
            fidelity="order",
            prompt_tokens=prompt,
            cached_tokens=prompt - tokens,
            recomputed=np.zeros(len(prompt), np.int64),
            hit_age=none,
            eviction_age=none,
            seconds=0.0,
        )

    return replay


def by_policy(**late: int) -> Half:
    """So many late requests by policy; `_` for `-` in its name."""
    return lambda knobs: uncached(late[knobs.policy.replace("-", "_")])


def valley(knobs: Knobs) -> Int64:
    """T-LRU is best at xi - q_hat of 2,200: 30 late, and more for every block away from it."""
    if knobs.policy == "t-lru":
        assert knobs.xi_tokens is not None
        assert knobs.q_hat_tokens is not None
        away = abs(knobs.xi_tokens - knobs.q_hat_tokens - 2_200) // BLOCK
        return uncached(min(30 + away, HALF))
    return uncached({"infinite": 10, "tail-belady": 20, "prefix-lru": 100}[knobs.policy])


def advised(first: Half, other: Half) -> Advice:
    return advise(trace(), 100, GOAL, replayed(first, other))


LEAST = {"infinite": 10, "tail_belady": 20}


@pytest.mark.parametrize(
    ("first", "other", "expected"),
    [
        ({"infinite": 60, "tail_belady": 60, "prefix_lru": 90, "t_lru": 70},) * 2
        + (Verdict.FLOOR_ABOVE_TARGET,),
        ({**LEAST, "prefix_lru": 50, "t_lru": 20},) * 2 + (Verdict.STOCK_MEETS_TARGET,),
        ({**LEAST, "prefix_lru": 90, "t_lru": 40},) * 2 + (Verdict.REACHED,),
        (
            {**LEAST, "prefix_lru": 90, "t_lru": 40},
            {**LEAST, "prefix_lru": 90, "t_lru": 60},
            Verdict.REACHED_ONCE,
        ),
        ({**LEAST, "prefix_lru": 90, "t_lru": 80},) * 2 + (Verdict.BETTER,),
        (
            {**LEAST, "prefix_lru": 90, "t_lru": 80},
            {**LEAST, "prefix_lru": 90, "t_lru": 95},
            Verdict.NO_GAIN,
        ),
        ({**LEAST, "prefix_lru": 90, "t_lru": 95},) * 2 + (Verdict.NO_GAIN,),
    ],
)
def test_verdicts(first: dict[str, int], other: dict[str, int], expected: Verdict) -> None:
    """Half the requests are 500, a tenth of which may be late."""
    advice = advised(by_policy(**first), by_policy(**other))
    assert advice.verdict is expected
    not_eviction = expected in (Verdict.FLOOR_ABOVE_TARGET, Verdict.STOCK_MEETS_TARGET)
    assert ("Eviction is not your problem" in verdict(advice)[0]) == not_eviction
    open_still = expected in (Verdict.REACHED_ONCE, Verdict.BETTER, Verdict.NO_GAIN)
    assert ("does not rule the target out" in " ".join(verdict(advice))) == open_still
    settable = expected in (Verdict.REACHED, Verdict.REACHED_ONCE, Verdict.BETTER)
    assert any("knob document" in line for line in verdict(advice)) == (settable or advice.gain)


def test_nothing_is_searched_where_the_stock_order_meets_the_target() -> None:
    asked: list[str] = []
    made_up = replayed(*[by_policy(**LEAST, prefix_lru=50)] * 2)

    def replay(part: Trace, knobs: Knobs) -> Result:
        asked.append(knobs.policy)
        return made_up(part, knobs)

    advice = advise(trace(), 100, GOAL, replay)
    assert sorted(asked) == ["infinite", "prefix-lru", "tail-belady"]
    assert advice.outcome("best") is None


def test_the_search_goes_to_the_bottom_of_the_valley_and_says_where_it_is() -> None:
    advice = advised(valley, valley)
    best = advice.outcome("best")
    assert best is not None
    assert best.knobs.policy == "t-lru"
    assert best.knobs.q_hat_tokens == 300  # the growth of every turn
    assert abs((best.knobs.xi_tokens or 0) - 300 - 2_200) < 2 * BLOCK
    assert len(advice.trials) + 6 <= most_replays(("t-lru",))
    text = "\n".join(verdict(advice))
    assert "0.55 of the target's 4,000" in text
    document = json.loads(text.partition("In the knob document: ")[2].splitlines()[0])
    assert document == {
        "policy": "t-lru", "xiTokens": best.knobs.xi_tokens, "qHatTokens": 300
    }  # fmt: skip


def test_of_equals_the_middle_one_is_taken_and_the_stock_order_first() -> None:
    def flat(knobs: Knobs) -> Int64:
        """T-LRU is equally good wherever xi - q_hat is between 1,000 and 3,000."""
        if knobs.policy != "t-lru":
            return uncached({"infinite": 10, "tail-belady": 20, "prefix-lru": 100}[knobs.policy])
        apart = (knobs.xi_tokens or 0) - (knobs.q_hat_tokens or 0)
        return uncached(30 if 1_000 <= apart <= 3_000 else 200)

    best = advised(flat, flat).outcome("best")
    assert best is not None
    assert 1_500 < (best.knobs.xi_tokens or 0) - (best.knobs.q_hat_tokens or 0) < 2_500
    same = by_policy(**LEAST, prefix_lru=100, t_lru=100)
    best = advised(same, same).outcome("best")
    assert best is not None
    assert best.knobs.policy == "prefix-lru"


def test_late_requests_count_before_tel_and_tel_before_the_median() -> None:
    def rank(late: int, excess: int, rest: int) -> tuple[int, int, int]:
        tokens = uncached(late, excess, rest)
        return score(GOAL, tokens, np.full(HALF, PROMPT)).rank

    assert rank(10, 5_000, 3_000) < rank(11, 1, 10)
    assert rank(10, 50, 3_000) < rank(10, 51, 10)
    assert rank(10, 50, 500) < rank(10, 50, 501)


def test_less_tel_but_more_late_requests_is_not_chosen_and_is_told() -> None:
    """The trap of xi = target: users come back just above it."""

    def trap(knobs: Knobs) -> Int64:
        if knobs.policy == "t-lru" and (knobs.xi_tokens or 0) - (knobs.q_hat_tokens or 0) > 3_500:
            return uncached(150, excess=10)
        late = {"infinite": 10, "tail-belady": 20, "prefix-lru": 100, "t-lru": 90}
        return uncached(late[knobs.policy], excess=4_000)

    advice = advised(trap, trap)
    best, naive = advice.outcome("best"), advice.outcome("naive")
    assert best is not None
    assert naive is not None
    assert naive.other.excess_tokens < best.other.excess_tokens
    assert best.other.late == 90
    text = "\n".join(verdict(advice))
    assert "Not the target's own xi" in text
    assert "although TEL is lower" in text


def test_q_hat_is_read_from_the_first_half_alone() -> None:
    whole = trace(turns_grow_by=300)
    whole.prompt_tokens[HALF:] += 7_000 * np.arange(HALF)  # unheard-of growth later on
    advice = advise(whole, 100, GOAL, replayed(valley, valley))
    assert advice.q_hat_tokens == 300
    assert advice.turns == HALF - 1


def test_growth_counts_from_all_of_the_turn_before_and_never_below_zero() -> None:
    three = trace(turns_grow_by=100, requests=3)
    three.output_tokens[:] = [30, 400, 0]
    assert growth(three).tolist() == [70, 0]


@pytest.mark.parametrize(
    ("cost", "slo", "xi"),
    [
        (Cost(1e-4), 0.8, 8_000),
        (Cost(1e-4), 0.3, 3_000),  # 0.3 / 1e-4 is a little less in floating point
        (Cost(0.0, 2e-8), 1.0, 10_000),
        (Cost(1e-4, 1e-8), 1.0, 7_320),  # 0.732 + 0.268 s
    ],
)
def test_the_target_as_a_length(cost: Cost, slo: float, xi: int) -> None:
    goal = Goal(slo, 0.99, cost)
    assert goal.xi_tokens == xi
    lengths = np.array([xi, xi + 1])
    in_time = goal.seconds(lengths, lengths) <= slo * (1 + 1e-9)
    assert in_time.tolist() == [True, False]


def test_after_a_cached_prefix_the_same_tokens_take_longer() -> None:
    goal = Goal(1.0, 0.99, Cost(1e-4, 1e-8))
    fresh, later = goal.seconds(np.array([1_000, 1_000]), np.array([1_000, 50_000]))
    assert fresh == pytest.approx(0.1 + 1e-8 * 1_000 * 1_000 / 2)
    assert later == pytest.approx(0.1 + 1e-8 * 1_000 * (1_000 + 2 * 49_000) / 2)


def test_how_many_may_be_late() -> None:
    """By nearest rank: the p99 of 300 is the 297th, so three may be above it."""
    goal = Goal(1.0, 0.99, Cost(1.0))
    assert [goal.allowed(requests) for requests in (300, 100, 99, 1)] == [3, 1, 0, 0]


def test_the_text_says_what_the_bounds_bound() -> None:
    advice = advised(valley, valley)
    text = " ".join(notes(advice))
    assert "Tail-optimal Belady bounds TEL at one xi, here 4,000" in text
    assert "does not bound a quantile, nor the number of late requests" in text
    assert "as long as nobody has to queue" in text
    whole = told(advice)
    assert all(len(line) <= 130 for line in whole.splitlines())
    for role in ("floor", "bound of TEL", "in use today", "xi of the target", "best found"):
        assert role in whole


def test_the_cost_to_the_median_is_told() -> None:
    def dear(knobs: Knobs) -> Int64:
        return uncached(40, rest=1_500) if knobs.policy == "t-lru" else valley(knobs)

    text = "\n".join(verdict(advised(dear, dear)))
    assert "p50 500 -> 1,500 uncached tokens (the median waits 100 ms longer)" in text


def test_what_knows_the_future_is_no_candidate() -> None:
    with pytest.raises(ValueError, match="belady knows the future"):
        advise(trace(), 100, GOAL, replayed(valley, valley), ("belady",))


def test_a_single_request_has_no_halves() -> None:
    with pytest.raises(ValueError, match="at least 2 requests"):
        advise(trace(requests=1), 100, GOAL, replayed(valley, valley))
