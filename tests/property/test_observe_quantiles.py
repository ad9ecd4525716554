"""Quantiles from buckets, pooling and increases hold for whatever engines may report."""

from __future__ import annotations

import math
import random
from bisect import bisect_left
from decimal import Decimal

from evictune.api.observation import Idle, Interval, Unknown
from evictune.api.policy import TTFTObjective
from evictune.api.reasons import Reason
from evictune.observe.quantiles import pool_buckets, read_quantile
from evictune.observe.rates import Scrape, increases, within
from hypothesis import given
from hypothesis import strategies as st

# A busy machine may take its time over one example.

latencies = st.lists(st.floats(0.0001, 200), min_size=1, max_size=60)
bounds = st.lists(st.floats(0.001, 100), min_size=2, max_size=20, unique=True).map(sorted)
quantiles = st.decimals("0.01", "0.999", places=3)
thresholds = st.floats(0.0005, 150)


def cumulative(values: list[float], uppers: list[float]) -> dict[float, float]:
    """Counts as a histogram of Prometheus keeps them."""
    ordered = sorted(values)
    counts = {bound: float(sum(v <= bound for v in ordered)) for bound in uppers}
    return counts | {math.inf: float(len(ordered))}


def objective(quantile: Decimal, threshold: float = 1.0) -> TTFTObjective:
    return TTFTObjective(quantile, threshold=threshold, window=60.0, min_requests=1)


@given(latencies, bounds, quantiles, thresholds)
def test_the_interval_holds_the_true_quantile_and_the_true_share(
    values: list[float], uppers: list[float], quantile: Decimal, threshold: float
) -> None:
    reading = read_quantile(cumulative(values, uppers), objective(quantile, threshold))
    true = sorted(values)[math.ceil(quantile * len(values)) - 1]
    if isinstance(reading, Unknown):
        assert reading.reason is Reason.IMPLAUSIBLE
        assert max(values) <= uppers[0]
        return
    assert isinstance(reading, Interval)
    assert reading.lower <= true <= reading.upper
    assert reading.lower <= reading.estimate <= reading.upper
    share = sum(value > threshold for value in values) / len(values)
    assert reading.above_lower - 1e-12 <= share <= reading.above_upper + 1e-12


@given(latencies, bounds, quantiles)
def test_the_interval_is_the_narrowest_that_the_buckets_allow(
    values: list[float], uppers: list[float], quantile: Decimal
) -> None:
    reading = read_quantile(cumulative(values, uppers), objective(quantile))
    if isinstance(reading, Interval):
        edges = [0.0, *uppers, math.inf]
        index = bisect_left(edges, reading.upper)
        assert reading.lower == edges[index - 1]


@given(st.lists(latencies, min_size=1, max_size=6), bounds, quantiles, st.randoms())
def test_pooling_does_not_depend_on_the_order_of_engines(
    engines: list[list[float]], uppers: list[float], quantile: Decimal, rng: random.Random
) -> None:
    pages = [cumulative(values, uppers) for values in engines]
    shuffled = rng.sample(pages, len(pages))
    everything = cumulative([value for values in engines for value in values], uppers)
    assert pool_buckets(pages) == pool_buckets(shuffled) == everything


@given(st.lists(latencies, min_size=2, max_size=4), st.lists(bounds, min_size=2, max_size=4))
def test_engines_with_other_bounds_are_pooled_over_the_bounds_they_share(
    engines: list[list[float]], layouts: list[list[float]]
) -> None:
    shared = [0.5, 2.0]
    pages = [
        cumulative(values, sorted({*layout, *shared}))
        for values, layout in zip(engines, layouts, strict=False)
    ]
    pooled = pool_buckets(pages)
    used = engines[: len(pages)]
    for bound in shared:
        assert pooled[bound] == sum(value <= bound for values in used for value in values)


@given(bounds)
def test_no_observation_is_idle_not_a_perfect_latency(uppers: list[float]) -> None:
    assert read_quantile(cumulative([], uppers), objective(Decimal("0.99"))) == Idle()


@st.composite
def lives(draw: st.DrawFn) -> tuple[list[Scrape[str]], dict[str, float]]:
    """A page's scrapes through restarts, and how much each counter truly grew since the first."""
    counters = dict.fromkeys("abc", 0.0)
    for name in counters:
        counters[name] = float(draw(st.integers(0, 50)))
    scrapes = [Scrape(0.0, dict(counters))]
    grown = dict.fromkeys(counters, 0.0)
    for time in range(1, draw(st.integers(1, 12))):
        # A restart shows only where a counter had something to lose.
        restart = draw(st.booleans()) and any(counters.values())
        if restart:
            counters = dict.fromkeys(counters, 0.0)
        for name in counters:
            more = float(draw(st.integers(0, 30)))
            counters[name] += more
            grown[name] += more
        fell = any(counters[name] < scrapes[-1].counters[name] for name in counters)
        if restart and not fell:
            return scrapes, {
                name: grown[name] - counters[name] for name in counters
            }  # It outgrew all that it had: nobody could tell. The life ends before it.
        scrapes.append(Scrape(float(time), dict(counters)))
    return scrapes, grown


@given(lives())
def test_increases_count_every_step_through_restarts(
    life: tuple[list[Scrape[str]], dict[str, float]],
) -> None:
    scrapes, grown = life
    assert increases(scrapes) == grown


@given(st.lists(st.dictionaries(st.sampled_from("abcd"), st.floats(0, 1e9)), max_size=10))
def test_increases_are_never_negative(pages: list[dict[str, float]]) -> None:
    scrapes = [Scrape(float(time), page) for time, page in enumerate(pages)]
    assert all(grown >= 0 for grown in increases(scrapes).values())


@given(st.lists(st.floats(0, 1000), min_size=1, max_size=50), st.floats(1, 300))
def test_a_window_holds_what_lies_in_it_and_at_most_one_scrape_before(
    times: list[float], window: float
) -> None:
    scrapes = [Scrape(time, {}) for time in sorted(times)]
    now = scrapes[-1].time
    chosen = within(scrapes, now, window)
    inside = [scrape for scrape in scrapes if scrape.time > now - window]
    assert list(chosen[-len(inside) :]) == inside
    assert len(chosen) <= len(inside) + 1
    assert all(scrape.time >= now - 2 * window for scrape in chosen)
