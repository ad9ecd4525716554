"""VS-7: after all clients went away the KV usage stays high although nothing runs."""

from __future__ import annotations

from evictune.api.observation import Unknown, Value
from evictune.api.reasons import Reason

from tests.support.field_case import TICK, Scene, engine_page, play, ttft_page

COUNTS = {"0.25": 900, "0.5": 980, "1": 1000, "+Inf": 1000}


def page(usage: float = 0.94, running: float = 0, waiting: float = 0, tokens: float = 5000) -> str:
    return engine_page(
        kv_cache_usage_perc=usage,
        num_requests_running=running,
        num_requests_waiting=waiting,
        generation_tokens_total=tokens,
        num_preemptions_total=12,
    ) + ttft_page(COUNTS)


def test_ten_ticks_of_a_high_gauge_without_work_are_no_pressure() -> None:
    async def scenario(scene: Scene) -> None:
        scene.page("owl-8b-a", page())
        for _ in range(10):
            seen = await scene.look(TICK)
            reading = seen.readings.kv_usage
            assert isinstance(reading, Unknown)
            assert reading.reason is Reason.STALE_GAUGE
            assert isinstance(seen.readings.engines[0].kv_usage, Unknown)
            assert not seen.acts
            assert not seen.decision.effects
        status, reason, message = seen.condition("MetricsAvailable")
        assert (status, reason) == ("False", "StaleGauge")
        assert "0.94 although nothing runs or waits" in message
        assert seen.condition("SLOMet")[0] == "Unknown"
        scene.page("owl-8b-a", page(running=3, tokens=5100))
        assert (await scene.look(TICK)).readings.kv_usage == Value(0.94)

    play(scenario)


def test_a_high_gauge_with_a_queue_alone_is_trusted() -> None:
    async def scenario(scene: Scene) -> None:
        scene.page("owl-8b-a", page(waiting=5))
        assert (await scene.look()).readings.kv_usage == Value(0.94)

    play(scenario)


def test_one_frozen_rank_is_named_and_hides_no_other() -> None:
    """Of two ranks the frozen one is doubted; what the other says stands."""

    async def scenario(scene: Scene) -> None:
        hot = engine_page('engine="1"', kv_cache_usage_perc=0.7, num_requests_running=4)
        scene.page("owl-8b-a", page() + hot + 'vllm:num_requests_waiting{engine="1"} 0\n')
        seen = await scene.look()
        assert isinstance(seen.readings.kv_usage, Unknown)
        assert "pod owl-8b-a engine 0" in seen.readings.kv_usage.message
        usages = {engine.engine: engine.kv_usage for engine in seen.readings.engines}
        assert usages["1"] == Value(0.7)

    play(scenario)
