"""The whole observer over HTTP: a real engine's pages, and what goes wrong."""

from __future__ import annotations

import re
import time

import pytest
from evictune.api.knobs import KnobValues
from evictune.api.observation import Idle, Interval, Value
from evictune.api.reasons import Reason

from tests.support.observed_fleet import Fleet, capture, counted, run, unknown
from tests.support.page_server import Answer


def test_a_real_engine_s_pages_give_every_reading() -> None:
    async def scenario(fleet: Fleet) -> None:
        await fleet.observe()
        fleet.engine("owl-0", capture("loaded"))
        seen = await fleet.observe(after=30.0)
        queries = counted("loaded", "vllm:prefix_cache_queries_total")
        hits = counted("loaded", "vllm:prefix_cache_hits_total")
        requests = counted("loaded", "vllm:request_prompt_tokens_count")
        computed = counted("loaded", "vllm:request_prefill_kv_computed_tokens_sum")
        assert 0 < hits < queries
        assert seen.hit_ratio == Value(hits / queries)
        assert seen.uncached_tokens == Value((queries - hits) / 30)
        assert seen.prompt_tokens_per_request == Value(queries / requests)
        assert seen.preemptions == Value(0)
        assert seen.running == seen.waiting == seen.kv_usage == Value(0)
        prefill = counted("loaded", "vllm:request_prefill_time_seconds_sum")
        queued = counted("loaded", "vllm:request_queue_time_seconds_sum")
        assert seen.prefill_rate == Value(computed / prefill)
        assert seen.queue_time == Value(queued / requests)
        assert seen.metric_names["kv_usage"] == "vllm:kv_cache_usage_perc"
        (engine,) = seen.engines
        assert (engine.pod, engine.engine) == ("owl-0", "0")
        assert (engine.block_tokens, engine.capacity_tokens) == (32, 80 * 32)
        assert engine.kv_usage == Value(0)

    run(scenario)


def test_a_real_engine_s_quantile_lies_in_the_bucket_that_holds_it() -> None:
    async def scenario(fleet: Fleet) -> None:
        await fleet.observe()
        fleet.engine("owl-0", capture("loaded"))
        ttft = (await fleet.observe(after=30.0)).ttft
        assert isinstance(ttft, Interval)
        requests = counted("loaded", "vllm:time_to_first_token_seconds_count")
        assert ttft.requests == requests
        bucket = "vllm:time_to_first_token_seconds_bucket.*le="
        assert counted("loaded", f'{bucket}"{ttft.upper}"') >= 0.9 * requests
        assert counted("loaded", f'{bucket}"{ttft.lower}"') < 0.9 * requests

    run(scenario)


def test_the_ranks_of_a_real_data_parallel_engine_are_told_apart_and_pooled() -> None:
    pair = "vllm-0.32.0-ranks-2"

    def grown(sample: str, page: str = "engine") -> list[float]:
        """What each rank's counter grew by, read off the captured pages."""
        text = [capture(moment, page, pair) for moment in ("loaded", "later")]
        pattern = rf"^{sample}[^}}]*\}} (\S+)$"
        before, after = ([float(x) for x in re.findall(pattern, of, re.MULTILINE)] for of in text)
        assert len(after) == 2
        return [now - then for then, now in zip(before, after, strict=True)]

    async def scenario(fleet: Fleet) -> None:
        for moment in ("loaded", "later"):
            fleet.engine("owl-0", capture(moment, of=pair))
            fleet.plugin("owl-0", capture(moment, "plugin", pair))
            seen = await fleet.observe(after=30.0)
        assert [(engine.pod, engine.engine) for engine in seen.engines] == [
            ("owl-0", "0"),
            ("owl-0", "1"),
        ]
        for engine in seen.engines:
            assert (engine.in_force, engine.revision) == (KnobValues(128, 64), 7)
            assert engine.capacity_tokens == 80 * 32
        hits, queries = (grown(f"vllm:prefix_cache_{what}_total") for what in ("hits", "queries"))
        assert seen.hit_ratio == Value(sum(hits) / sum(queries))
        assert seen.uncached_tokens == Value((sum(queries) - sum(hits)) / 30)
        evicted = grown('evictune_evicted_blocks_total.*region="protected"', "plugin")
        assert seen.evicted_protected == Value(sum(evicted))

    run(scenario)


def test_the_first_look_has_gauges_and_no_rates() -> None:
    async def scenario(fleet: Fleet) -> None:
        seen = await fleet.observe()
        assert seen.kv_usage == Value(0)
        for reading in (seen.ttft, seen.preemptions, seen.hit_ratio, seen.evicted_lru):
            assert unknown(reading).reason is Reason.WARMING_UP

    run(scenario)


def test_an_engine_without_traffic_is_idle() -> None:
    async def scenario(fleet: Fleet) -> None:
        fleet.engine("owl-0", capture("loaded"))
        await fleet.observe()
        seen = await fleet.observe(after=30.0)
        assert seen.ttft == seen.hit_ratio == seen.queue_time == seen.prefill_rate == Idle()
        assert seen.uncached_tokens == Value(0)

    run(scenario)


def test_a_window_shorter_than_the_interval_says_so() -> None:
    async def scenario(fleet: Fleet) -> None:
        await fleet.observe(window="12s")
        seen = await fleet.observe(after=30.0, window="12s")
        reading = unknown(seen.ttft)
        assert reading.reason is Reason.WARMING_UP
        assert "slo.ttft.window" in reading.message
        again = await fleet.observe(after=2.0, window="12s")
        assert again.ttft == Idle()

    run(scenario)


def test_who_asks_about_a_short_window_does_not_shorten_another() -> None:
    async def scenario(fleet: Fleet) -> None:
        await fleet.observe()
        fleet.engine("owl-0", capture("loaded"))
        for _ in range(8):
            await fleet.observe(after=5.0)
            await fleet.observe(window="5s")
        seen = await fleet.observe(after=1.0)
        assert isinstance(seen.ttft, Interval)
        assert seen.ttft.requests == counted("loaded", "vllm:time_to_first_token_seconds_count")

    run(scenario)


def test_a_restart_counts_from_zero() -> None:
    async def scenario(fleet: Fleet) -> None:
        fleet.engine("owl-0", capture("later"))
        await fleet.observe()
        fleet.engine("owl-0", capture("loaded"))
        seen = await fleet.observe(after=30.0)
        assert isinstance(seen.ttft, Interval)
        assert seen.ttft.requests == counted("loaded", "vllm:time_to_first_token_seconds_count")

    run(scenario)


def test_a_new_pod_of_the_old_name_is_looked_at_afresh() -> None:
    async def scenario(fleet: Fleet) -> None:
        await fleet.observe()
        fleet.generation = 2
        fleet.engine("owl-0", capture("loaded"))
        seen = await fleet.observe(after=30.0)
        for reading in (seen.ttft, seen.uncached_tokens, seen.evicted_lru):
            assert unknown(reading).reason is Reason.WARMING_UP

    run(scenario)


def test_pods_are_pooled_and_one_without_pages_makes_coverage_incomplete() -> None:
    async def scenario(fleet: Fleet) -> None:
        await fleet.observe()
        for name in fleet.names:
            fleet.engine(name, capture("loaded"))
        seen = await fleet.observe(after=30.0)
        assert isinstance(seen.ttft, Interval)
        assert seen.ttft.requests == 2 * counted("loaded", "vllm:time_to_first_token_seconds_count")
        fleet.engine("owl-1", "", status=503)
        reading = unknown((await fleet.observe(after=1.0)).ttft)
        assert reading.reason is Reason.INCOMPLETE_COVERAGE
        assert "owl-1" in reading.message
        assert "status 503" in reading.message

    run(scenario, "owl-0", "owl-1")


@pytest.mark.parametrize(
    ("page", "words"),
    [
        (Answer(hang=True), "no answer within"),
        (Answer(status=404), "status 404"),
        (Answer(status=302, headers={"Location": "http://127.0.0.1:1/"}), "status 302"),
        (Answer("<html><body>route</body></html>"), "not the Prometheus text format"),
        (Answer('vllm:time_to_first_token_seconds_bucket{engine="0"} 5\n'), "le=''"),
        (Answer('vllm:time_to_first_token_seconds_bucket{le="1.x"} 5\n'), "le='1.x'"),
    ],
)
def test_pages_that_are_none(page: Answer, words: str) -> None:
    async def scenario(fleet: Fleet) -> None:
        fleet.pages["/owl-0/engine"] = page
        began = time.monotonic()
        seen = await fleet.observe()
        assert time.monotonic() - began < 8
        for reading in (seen.ttft, seen.kv_usage, seen.preemptions, seen.uncached_tokens):
            assert unknown(reading).reason is Reason.SOURCE_UNAVAILABLE
            assert words in unknown(reading).message
        assert seen.engines[0].in_force == KnobValues(512, 200)

    run(scenario)


def test_a_target_that_is_gone_makes_every_reading_unknown() -> None:
    async def scenario(fleet: Fleet) -> None:
        fleet.problem = Reason.TARGET_MISSING
        seen = await fleet.observe()
        assert seen.engines == ()
        assert not seen.target.found
        for name in ("ttft", "kv_usage", "running", "evicted_lru", "prompt_tokens_per_request"):
            assert unknown(getattr(seen, name)).reason is Reason.TARGET_MISSING

    run(scenario)


def test_a_frozen_gauge_is_doubted_on_the_engine_too() -> None:
    async def scenario(fleet: Fleet) -> None:
        page = re.sub(r"(vllm:kv_cache_usage_perc\{[^}]*\}) \S+", r"\1 0.94", capture("loaded"))
        fleet.engine("owl-0", page)
        seen = await fleet.observe()
        assert unknown(seen.kv_usage).reason is Reason.STALE_GAUGE
        assert unknown(seen.engines[0].kv_usage).reason is Reason.STALE_GAUGE

    run(scenario)
