"""Readings from engines as the field shows them: renamed, idle, saturated, gone or frozen."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable
from decimal import Decimal

import pytest
from evictune.api.observation import Idle, Interval, Reading, Unknown, Value
from evictune.api.policy import TTFTObjective
from evictune.api.reasons import Reason
from evictune.observe.dialects import Engine, Measure
from evictune.observe.draft import Draft
from evictune.observe.engine_page import read_engine_page, sample_names
from evictune.observe.exposition import parse
from evictune.observe.pool import Pooling
from evictune.observe.quantiles import pool_buckets, read_quantile
from evictune.observe.snapshot import PodKey, RankKey

SECONDS = 60.0


def pod(name: str) -> PodKey:
    return PodKey("serve-a", name)


def rank(name: str, engine: str = "0") -> RankKey:
    return RankKey(pod(name), engine)


def pooling(draft: Draft, ready: Iterable[str], engine: Engine = Engine.VLLM) -> Pooling:
    for of in draft.values.values():
        draft.seconds |= dict.fromkeys(of, SECONDS)
    return Pooling(draft.done(), [pod(name) for name in ready], engine, "default")


def pages(engine: Engine = Engine.VLLM, **texts: str) -> Draft:
    """What the pods' pages say of now."""
    draft = Draft()
    for name, text in texts.items():
        page = read_engine_page(parse(text, sample_names(engine)), engine)
        for (measure, of), value in page.gauges.items():
            draft.add_value(measure, rank(name, of), value)
        for (measure, of), used in page.names.items():
            draft.add_name(measure, rank(name, of), used)
    return draft


def objective(threshold: float = 1.0, quantile: str = "0.99", least: int = 1) -> TTFTObjective:
    return TTFTObjective(Decimal(quantile), threshold, window=SECONDS, min_requests=least)


def reason(reading: Reading | Interval) -> Reason:
    assert isinstance(reading, Unknown), reading
    assert reading.message
    return reading.reason


def test_old_new_and_both_names_of_kv_usage_on_one_fleet() -> None:
    draft = pages(
        a='vllm:gpu_cache_usage_perc{engine="0",model_name="owl-8b"} 0.71\n',
        b='vllm:gpu_cache_usage_perc{engine="0",model_name="owl-8b"} 0.64\n'
        'vllm:kv_cache_usage_perc{engine="0",model_name="owl-8b"} 0.64\n',
        c='vllm:kv_cache_usage_perc{engine="0",model_name="owl-8b"} 0.83\n',
    )
    view = pooling(draft, "abc")
    assert draft.values[Measure.KV_USAGE] == {rank("a"): 0.71, rank("b"): 0.64, rank("c"): 0.83}
    assert view.kv_usage() == Value(0.83)
    names = view.metric_names()["kv_usage"]
    assert names == "vllm:gpu_cache_usage_perc, vllm:kv_cache_usage_perc"
    assert draft.names[Measure.KV_USAGE][rank("b")] == "vllm:kv_cache_usage_perc"


def test_where_both_names_disagree_the_new_one_wins() -> None:
    both = (
        'vllm:gpu_cache_usage_perc{engine="0"} 0.9\nvllm:kv_cache_usage_perc{engine="0"} 0.6\n'
        'vllm:gpu_prefix_cache_hits_total{engine="0"} 9000\n'
        'vllm:prefix_cache_hits_total{engine="0"} 100\n'
    )
    assert pooling(pages(a=both), "a").kv_usage() == Value(0.6)
    page = read_engine_page(parse(both, sample_names(Engine.VLLM)), Engine.VLLM)
    assert page.counters == {(Measure.CACHE_HITS, "0", None): 100}


def hits_and_queries(**counts: tuple[float, float]) -> Draft:
    draft = Draft()
    for name, (hits, queries) in counts.items():
        draft.add_value(Measure.CACHE_HITS, rank(name), hits)
        draft.add_value(Measure.CACHE_QUERIES, rank(name), queries)
    return draft


def test_the_hit_ratio_is_that_of_the_window_and_pooled_over_pods() -> None:
    assert pooling(hits_and_queries(a=(300, 1000)), "a").hit_ratio() == Value(0.3)
    reading = pooling(hits_and_queries(a=(9000, 10000), b=(10, 1000)), "ab").hit_ratio()
    assert isinstance(reading, Value)
    assert reading.value == pytest.approx(0.819, abs=5e-4)


def test_without_queries_the_hit_ratio_is_undefined_not_zero() -> None:
    assert pooling(hits_and_queries(a=(0, 0)), "a").hit_ratio() == Idle()


def test_a_ratio_upside_down_is_refused_loudly(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        reading = pooling(hits_and_queries(a=(1000, 300)), "a").hit_ratio()
    assert reason(reading) is Reason.OUT_OF_RANGE
    assert "cannot exceed 1" in caplog.text


def test_sglang_has_pressure_but_no_preemptions() -> None:
    page = (
        'sglang:token_usage{model_name="owl"} 0.94\nsglang:num_queue_reqs{model_name="owl"} 14\n'
        'sglang:num_running_reqs{model_name="owl"} 8\n'
        'sglang:cache_hit_rate{model_name="owl"} 87.6\n'
    )
    view = pooling(pages(Engine.SGLANG, a=page), "a", Engine.SGLANG)
    assert view.kv_usage() == Value(0.94)
    assert view.total(Measure.WAITING) == Value(14)
    assert reason(view.preemptions()) is Reason.NOT_MEASURABLE
    assert reason(view.hit_ratio()) is Reason.NOT_MEASURABLE


@pytest.mark.parametrize("order", [("0", "1"), ("1", "0")])
def test_the_hottest_rank_counts_whichever_line_comes_first(order: tuple[str, str]) -> None:
    usage = {"0": "0.97", "1": "0.12"}
    lines = [f'vllm:kv_cache_usage_perc{{engine="{of}"}} {usage[of]}\n' for of in order]
    assert pooling(pages(a="".join(lines)), "a").kv_usage() == Value(0.97)


def test_preemptions_are_those_of_the_worst_engine_per_second() -> None:
    draft = Draft()
    draft.add_value(Measure.PREEMPTIONS, rank("a", "0"), 30.0)
    draft.add_value(Measure.PREEMPTIONS, rank("a", "1"), 12.0)
    assert pooling(draft, "a").preemptions() == Value(0.5)


def test_a_quantile_is_taken_after_pooling() -> None:
    busy = {0.25: 900.0, 0.5: 980.0, 1.0: 1000.0, 5.0: 1000.0, math.inf: 1000.0}
    slow = {0.25: 0.0, 0.5: 0.0, 1.0: 10.0, 5.0: 20.0, math.inf: 20.0}
    reading = read_quantile(pool_buckets([busy, slow]), objective())
    assert isinstance(reading, Interval)
    assert (reading.lower, reading.upper) == (0.5, 1.0)
    assert reading.estimate == pytest.approx(0.997, abs=5e-4)
    assert reading.requests == 1020


def test_ghosts_are_ignored_and_a_new_pod_is_unknown_not_empty() -> None:
    draft = Draft()
    draft.add_value(Measure.KV_USAGE, rank("owl-8b-a"), 0.40)
    draft.add_value(Measure.KV_USAGE, rank("owl-8b-zz"), 0.99)
    held = pooling(draft, ["owl-8b-a", "owl-8b-b"]).kv_usage()
    assert reason(held) is Reason.INCOMPLETE_COVERAGE
    assert isinstance(held, Unknown)
    assert "owl-8b-b" in held.message
    assert "1 of 2" in held.message
    draft.add_value(Measure.KV_USAGE, rank("owl-8b-b"), 0.10)
    assert pooling(draft, ["owl-8b-a", "owl-8b-b"]).kv_usage() == Value(0.40)


def test_a_namespace_of_other_pods_only_names_series_source_and_pods() -> None:
    draft = Draft()
    draft.add_value(Measure.KV_USAGE, rank("wren-0"), 0.40)
    reading = pooling(draft, ["owl-8b-a"]).kv_usage()
    assert reason(reading) is Reason.NO_SERIES
    assert isinstance(reading, Unknown)
    for word in ("vllm:kv_cache_usage_perc", "'default'", "serve-a/owl-8b-a", "wren-0"):
        assert word in reading.message


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (math.nan, Reason.NOT_FINITE),
        (math.inf, Reason.NOT_FINITE),
        (-0.1, Reason.OUT_OF_RANGE),
        (87.6, Reason.OUT_OF_RANGE),
    ],
)
def test_what_cannot_be_a_usage_is_unknown(value: float, expected: Reason) -> None:
    draft = Draft()
    draft.add_value(Measure.KV_USAGE, rank("a"), value)
    assert reason(pooling(draft, "a").kv_usage()) is expected


def frozen(running: float) -> Draft:
    draft = Draft()
    draft.add_value(Measure.KV_USAGE, rank("a"), 0.94)
    draft.add_value(Measure.RUNNING, rank("a"), running)
    draft.add_value(Measure.WAITING, rank("a"), 0.0)
    return draft


def test_a_high_gauge_without_work_is_stale_until_work_comes() -> None:
    assert reason(pooling(frozen(running=0.0), "a").kv_usage()) is Reason.STALE_GAUGE
    assert pooling(frozen(running=1.0), "a").kv_usage() == Value(0.94)


def test_above_the_top_bucket_the_quantile_is_at_least_its_bound() -> None:
    counts = {0.1: 10.0, 0.5: 40.0, 1.0: 60.0, 5.0: 80.0, 10.0: 90.0, math.inf: 100.0}
    reading = read_quantile(counts, objective(threshold=1.0))
    assert isinstance(reading, Interval)
    assert (reading.lower, reading.upper) == (10.0, math.inf)
    assert reading.estimate == 10.0
    assert (reading.above_lower, reading.above_upper) == (pytest.approx(0.4), pytest.approx(0.4))


def test_everything_in_the_first_bucket_is_no_fairy_tale() -> None:
    counts = {0.001: 208.0, 0.005: 208.0, 0.1: 208.0, math.inf: 208.0}
    assert reason(read_quantile(counts, objective())) is Reason.IMPLAUSIBLE


def test_too_few_requests_for_the_quantile() -> None:
    counts = {0.1: 10.0, 0.5: 20.0, math.inf: 20.0}
    reading = read_quantile(counts, objective(least=300))
    assert reason(reading) is Reason.TOO_FEW_SAMPLES
    assert isinstance(reading, Unknown)
    assert "slo.ttft.minRequests" in reading.message


def test_a_bucket_that_is_no_number_is_not_swallowed() -> None:
    draft = Draft()
    for bound, count in ((0.1, 10.0), (0.5, math.nan), (math.inf, 20.0)):
        draft.add_bucket(Measure.TTFT, rank("a"), bound, count)
    assert reason(pooling(draft, "a").ttft(objective())) is Reason.NOT_FINITE


def test_bounds_are_compared_as_numbers() -> None:
    text = (
        'vllm:time_to_first_token_seconds_bucket{engine="0",le="0.5"} 1\n'
        'vllm:time_to_first_token_seconds_bucket{engine="0",le="1"} 2\n'
        'vllm:time_to_first_token_seconds_bucket{engine="0",le="10.0"} 3\n'
        'vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf"} 4\n'
    )
    page = read_engine_page(parse(text, sample_names(Engine.VLLM)), Engine.VLLM)
    bounds = [bound for _, _, bound in page.counters]
    assert bounds == [0.5, 1.0, 10.0, math.inf]


def test_prefill_rate_and_queue_time_without_traffic_are_idle() -> None:
    draft = Draft()
    for measure in (
        Measure.PREFILL_TOKENS,
        Measure.PREFILL_SECONDS,
        Measure.QUEUE_SECONDS,
        Measure.QUEUED_REQUESTS,
    ):
        draft.add_value(measure, rank("a"), 0.0)
    view = pooling(draft, "a")
    assert view.prefill_rate() == Idle()
    assert view.quotient(Measure.QUEUE_SECONDS, Measure.QUEUED_REQUESTS) == Idle()
