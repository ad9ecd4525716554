"""Yardsticks on requests counted by hand, and the sizes of requests. No compiler needed."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from evictune_policies.replay import yardsticks
from evictune_policies.replay.mechanics import AGE_BINS, AGE_BOUNDS, age_bin
from evictune_policies.replay.simulation.requests import requests_of, unknown_tokens
from evictune_policies.replay.simulation.result import Result
from evictune_policies.replay.traces.trace import Trace


def result(prompt: list[int], cached: list[int], block_tokens: int = 10) -> Result:
    return Result(
        policy="prefix-lru",
        xi_tokens=None,
        q_hat_tokens=None,
        capacity_blocks=100,
        block_tokens=block_tokens,
        fidelity="order",
        prompt_tokens=np.array(prompt, np.int64),
        cached_tokens=np.array(cached, np.int64),
        recomputed=np.full(len(prompt), 10, np.int64),
        hit_age=np.zeros(AGE_BINS, np.int64),
        eviction_age=np.zeros(AGE_BINS, np.int64),
        seconds=0.0,
    )


# Uncached: 15, 20, 41, 5.
FOUR = result([25, 20, 101, 45], [10, 0, 60, 40])


def test_hit_ratio_counts_partial_blocks_of_the_prompt() -> None:
    assert yardsticks.hit_ratio(FOUR) == 11 / (3 + 2 + 11 + 5)


def test_violations_are_strictly_above_xi() -> None:
    assert yardsticks.violations(FOUR, 20) == 1
    assert yardsticks.violations(FOUR, 19) == 2
    assert yardsticks.share_above(FOUR, 14) == 0.75


def test_tail_excess_latency_sums_what_is_above() -> None:
    assert yardsticks.tel(FOUR, 15) == 5 + 26
    assert yardsticks.tel(FOUR, 41) == 0
    assert yardsticks.tel(FOUR, 0) == 81


def test_quantiles_are_values_that_occurred() -> None:
    quantiles = [yardsticks.uncached_quantile(FOUR, q) for q in (0.25, 0.5, 0.51, 0.75, 0.99)]
    assert quantiles == [5, 15, 20, 20, 41]
    assert yardsticks.uncached_mean(FOUR) == 81 / 4


def test_of_a_hundred_the_p99_is_the_last_but_one() -> None:
    hundred = result(list(range(1, 101)), [0] * 100)
    assert yardsticks.uncached_quantile(hundred, 0.99) == 99
    assert yardsticks.uncached_quantile(hundred, 0.95) == 95


def test_gap_closed_is_a_share_and_negative_where_it_got_worse() -> None:
    stock, best = result([100], [20]), result([100], [60])
    assert yardsticks.tel_gap_closed(result([100], [30]), stock, best, 10) == 0.25
    assert yardsticks.tel_gap_closed(best, stock, best, 10) == 1.0
    assert yardsticks.tel_gap_closed(result([100], [0]), stock, best, 10) == -0.5


def test_no_gap_no_share() -> None:
    assert yardsticks.tel_gap_closed(FOUR, FOUR, FOUR, 10) is None
    assert yardsticks.tel_gap_closed(FOUR, result([100], [90]), FOUR, 50) is None


def test_nothing_has_no_yardsticks_but_zero() -> None:
    nothing = result([], [])
    assert yardsticks.hit_ratio(nothing) == 0
    assert yardsticks.uncached_quantile(nothing, 0.5) == 0
    assert yardsticks.uncached_mean(nothing) == 0
    assert yardsticks.share_above(nothing, 5) == 0
    assert nothing.recomputed_tokens == 0


def test_tenants_share_the_cache() -> None:
    chat, batch, idle = yardsticks.tenant_shares(
        FOUR, np.array([0, 1, 1, 0]), ("chat", "batch", "idle")
    )
    assert (chat.requests, batch.requests, idle.requests) == (2, 2, 0)
    assert chat.prompt_share == pytest.approx(70 / 191)
    assert chat.cached_share == pytest.approx(50 / 110)
    assert batch.cached_ratio == pytest.approx(60 / 121)
    assert (idle.prompt_share, idle.cached_ratio) == (0, 0)


def test_an_age_is_known_to_lie_between_two_bounds() -> None:
    ages = np.zeros(AGE_BINS, np.int64)
    for age in (0.0, 0.5, 0.6, 3.0):
        ages[age_bin(age)] += 1
    assert yardsticks.age_quantile(ages, 0.25) == (0.0, AGE_BOUNDS[0])
    assert yardsticks.age_quantile(ages, 0.5) == (0.5, 1.0)
    assert yardsticks.age_quantile(ages, 0.75) == (0.5, 1.0)
    assert yardsticks.age_quantile(ages, 1.0) == (2.0, 4.0)


def test_no_blocks_have_no_age_and_the_oldest_no_bound() -> None:
    ages = np.zeros(AGE_BINS, np.int64)
    assert yardsticks.age_quantile(ages, 0.5) is None
    ages[age_bin(1e9)] += 1
    assert yardsticks.age_quantile(ages, 0.5) == (AGE_BOUNDS[-1], math.inf)


@pytest.mark.parametrize("index", range(AGE_BINS - 1))
def test_every_bound_begins_a_bin(index: int) -> None:
    bound = float(AGE_BOUNDS[index])
    assert age_bin(bound) == index + 1
    assert age_bin(np.nextafter(bound, 0)) == index


def trace(prompt: int, output: int, known: int) -> Trace:
    """One request in blocks of 4 tokens."""
    contents = -(-known // 4)
    one = np.ones(1)
    return Trace(
        name="one",
        block_tokens=4,
        arrival=0 * one,
        prompt_tokens=np.array([prompt]),
        output_tokens=np.array([output]),
        starts=np.array([0, contents]),
        contents=np.arange(contents, dtype=np.int32),
        known_tokens=np.array([known]),
        parent=np.arange(-1, contents - 1, dtype=np.int32),
        depth=np.arange(contents, dtype=np.int32),
        previous=np.full(1, -1, np.int32),
        think=np.full(1, np.nan),
        tenant=np.zeros(1, np.int32),
        final=np.ones(1, np.bool_),
    )


@pytest.mark.parametrize(
    ("prompt", "output", "known", "lookup", "whole", "blocks"),
    [
        (8, 1, 8, 1, 2, 2),  # the last token is computed: its block is not looked up
        (9, 1, 9, 2, 2, 3),  # a partial last block has a place and no content
        (9, 5, 9, 2, 2, 4),  # an output that is not known
        (9, 5, 14, 2, 3, 4),  # one that is; its last token is never computed
        (8, 5, 13, 1, 3, 3),  # 12 tokens are computed
        (8, 4, 12, 1, 2, 3),  # 11 are: the third block does not get full
        (8, 0, 8, 1, 2, 2),  # no output at all
        (3, 1, 3, 0, 0, 1),
    ],
)
def test_sizes_by_the_engine_s_rules(
    prompt: int, output: int, known: int, lookup: int, whole: int, blocks: int
) -> None:
    requests = requests_of(trace(prompt, output, known))
    assert (requests.lookup[0], requests.whole[0], requests.blocks[0]) == (lookup, whole, blocks)


def test_what_the_trace_does_not_say_is_counted() -> None:
    assert unknown_tokens(trace(9, 5, 9)) == 5
    assert unknown_tokens(trace(9, 5, 14)) == 0


def test_recomputed_tokens_are_summed() -> None:
    assert FOUR.recomputed_tokens == 40
    assert replace(FOUR, recomputed=np.array([0, 0, 7, 0])).recomputed_tokens == 7
