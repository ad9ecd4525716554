"""Of VS's kind: counters that reset, windows too short, series that stop, clocks that disagree."""

from __future__ import annotations

import pytest
from evictune.api.observation import Idle, Interval, Unknown, Value
from evictune.api.reasons import Reason

from tests.support.field_case import NOW, Scene, case_policy, engine_page, play, ttft_page


def page(preemptions: float, requests: float = 0) -> str:
    counts = {"0.25": 0.0, "0.5": requests * 0.9, "1": requests, "+Inf": requests}
    return engine_page(num_preemptions_total=preemptions) + ttft_page(counts)


def test_a_restart_is_neither_a_negative_rate_nor_a_leap() -> None:
    async def scenario(scene: Scene) -> None:
        for preemptions, requests in ((5000, 9000), (5006, 9060), (3, 30), (9, 90)):
            scene.page("owl-8b-a", page(preemptions, requests))
            seen = (await scene.look(after=60)).readings
        assert seen.preemptions == Value((6 + 9) / 180)
        assert isinstance(seen.ttft, Interval)
        assert seen.ttft.requests == 60 + 90

    play(scenario)


def test_a_restart_that_outgrew_the_old_count_is_seen_by_its_neighbours() -> None:
    """One counter that fell tells that all of its process began at zero."""

    async def scenario(scene: Scene) -> None:
        for preemptions, requests in ((0, 1000), (60, 400)):
            scene.page("owl-8b-a", page(preemptions, requests))
            seen = (await scene.look(after=60)).readings
        assert seen.preemptions == Value(1.0)
        assert isinstance(seen.ttft, Interval)
        assert seen.ttft.requests == 400

    play(scenario)


def test_a_sum_that_falls_by_a_hair_is_no_restart() -> None:
    """A duration below zero, from a clock set back, must not count all of the past again."""

    async def scenario(scene: Scene) -> None:
        for preemptions, queued in ((5000, 800.0), (5030, 799.95)):
            sums = {"request_queue_time_seconds_sum": queued}
            counts = {"request_queue_time_seconds_count": 1000.0}
            scene.page("owl-8b-a", page(preemptions, 9000) + engine_page(**sums, **counts))
            seen = (await scene.look(after=60)).readings
        assert seen.preemptions == Value(0.5)
        assert seen.ttft == Idle()
        assert seen.queue_time == Idle()

    play(scenario)


def test_a_window_with_one_scrape_in_it_says_what_to_lengthen() -> None:
    async def scenario(scene: Scene) -> None:
        scene.policy = case_policy(ttft={"window": "10s"})
        for _ in range(3):
            scene.page("owl-8b-a", page(0, 100))
            seen = await scene.look(after=30)
            reading = seen.readings.ttft
            assert isinstance(reading, Unknown)
            assert reading.reason is Reason.WARMING_UP
            assert not seen.acts
        assert "lengthen slo.ttft.window or shorten behavior.interval" in reading.message

    play(scenario)


def test_a_store_with_gauges_and_no_increase_says_so() -> None:
    async def scenario(scene: Scene) -> None:
        scene.use_store()
        scene.store.put("vllm:num_requests_running", "3")
        scene.store.put("vllm:kv_cache_usage_perc", "0.5")
        seen = await scene.look()
        for reading in (seen.readings.ttft, seen.readings.preemptions):
            assert isinstance(reading, Unknown)
            assert reading.reason is Reason.WARMING_UP
            assert "several scrape intervals" in reading.message
        # It only needs time: no fault, and no value either.
        assert seen.condition("MetricsAvailable")[:2] == ("Unknown", "WarmingUp")

    play(scenario)


def test_series_that_stop_are_unknown_at_the_next_look() -> None:
    async def scenario(scene: Scene) -> None:
        for requests in (0, 100):
            scene.page("owl-8b-a", page(0, requests))
            seen = await scene.look(after=60)
        assert isinstance(seen.readings.ttft, Interval)
        scene.page("owl-8b-a", engine_page(num_requests_running=2))
        seen = await scene.look(after=60)
        for reading in (seen.readings.ttft, seen.readings.preemptions):
            assert isinstance(reading, Unknown)
            assert reading.reason is Reason.NO_SERIES
        scene.page("owl-8b-a", "", status=503)
        reading = (await scene.look(after=60)).readings.running
        assert isinstance(reading, Unknown)
        assert reading.reason is Reason.SOURCE_UNAVAILABLE

    play(scenario)


@pytest.mark.parametrize("skew", [-7200.0, 7200.0, 0.0])
def test_the_store_s_clock_is_its_own(skew: float) -> None:
    """No time is sent, and none that comes back is compared with ours."""

    async def scenario(scene: Scene) -> None:
        scene.use_store()
        scene.store.time = NOW + skew
        scene.store.put("vllm:kv_cache_usage_perc", "0.88")
        scene.store.put("vllm:num_preemptions_total", "150")
        seen = (await scene.look()).readings
        assert seen.kv_usage == Value(0.88)
        assert seen.preemptions == Value(0.5)
        asked = [each.parameters for each in scene.server.asked if "query" in each.parameters]
        assert asked
        assert all(set(parameters) == {"query"} for parameters in asked)

    play(scenario)


def test_timestamps_on_a_page_are_not_the_time_of_the_scrape() -> None:
    async def scenario(scene: Scene) -> None:
        for after, count in ((0, 0), (60, 30)):
            stamp = 1_000_000_000_000
            line = f'vllm:num_preemptions_total{{engine="0"}} {count} {stamp}\n'
            scene.page("owl-8b-a", line)
            seen = (await scene.look(after)).readings
        assert seen.preemptions == Value(0.5)

    play(scenario)
