"""VS-1: with no traffic a quantile is 0/0; that is neither a perfect latency nor a fault."""

from __future__ import annotations

import pytest
from evictune.api.observation import Idle, Interval, Unknown
from evictune.api.reasons import Reason

from tests.support.field_case import BUCKETS, Scene, engine_page, play
from tests.support.page_server import Answer

TTFT = "vllm:time_to_first_token_seconds"
GAUGES = {"kv_cache_usage_perc": "0.3", "num_requests_running": "0", "num_requests_waiting": "0"}


def put_ttft(scene: Scene, *counts: str) -> None:
    scene.store.vectors[TTFT] = []
    for le, count in zip(BUCKETS, counts, strict=True):
        scene.store.put(TTFT, count, le=le)


def put_gauges(scene: Scene) -> None:
    for name, value in GAUGES.items():
        scene.store.put(f"vllm:{name}", value)
    scene.store.put("vllm:num_preemptions_total", "0")


def test_a_trustworthy_zero_is_idle_and_the_next_tick_acts_normally() -> None:
    async def scenario(scene: Scene) -> None:
        scene.use_store()
        put_gauges(scene)
        put_ttft(scene, "0", "0", "0", "0", "0")
        seen = await scene.look()
        assert seen.readings.ttft == Idle()
        assert seen.regime == "Idle"
        assert seen.condition("SLOMet")[:2] == ("Unknown", "Idle")
        assert set(seen.status["observed"]["ttft"].values()) == {"Idle"}
        assert not seen.acts
        put_ttft(scene, "0", "0", "20", "180", "180")
        seen = await scene.look(after=30)
        assert isinstance(seen.readings.ttft, Interval)
        assert (seen.readings.ttft.lower, seen.readings.ttft.requests) == (1.0, 180)
        assert seen.condition("SLOMet")[:2] == ("False", "ObjectiveViolated")

    play(scenario)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [(None, Reason.NO_SERIES), (Answer("down", status=503), Reason.SOURCE_UNAVAILABLE)],
)
def test_no_count_is_unknown_and_no_zero(fault: Answer | None, reason: Reason) -> None:
    async def scenario(scene: Scene) -> None:
        scene.use_store()
        put_gauges(scene)
        scene.store.fault = fault
        seen = await scene.look()
        assert isinstance(seen.readings.ttft, Unknown)
        assert seen.readings.ttft.reason is reason
        assert seen.regime == "Unknown"
        assert seen.condition("SLOMet")[0] == "Unknown"
        assert seen.condition("MetricsAvailable")[0] == "False"
        assert not seen.acts

    play(scenario)


def test_nan_in_a_bucket_is_unknown_and_leaves_the_status_valid_json() -> None:
    async def scenario(scene: Scene) -> None:
        scene.use_store()
        put_gauges(scene)
        put_ttft(scene, "0", "NaN", "0", "0", "0")
        seen = await scene.look()
        assert isinstance(seen.readings.ttft, Unknown)
        assert seen.readings.ttft.reason is Reason.NOT_FINITE
        assert not seen.acts

    play(scenario)


def test_ratios_and_means_without_traffic_are_idle_too() -> None:
    async def scenario(scene: Scene) -> None:
        names = (
            "prefix_cache_hits_total",
            "prefix_cache_queries_total",
            "request_prefill_kv_computed_tokens_sum",
            "request_prefill_time_seconds_sum",
            "request_queue_time_seconds_sum",
            "request_queue_time_seconds_count",
        )
        scene.page("owl-8b-a", engine_page(**dict.fromkeys(names, 7.0)))
        await scene.look()
        seen = await scene.look(after=60)
        for name in ("hit_ratio", "prefill_rate", "queue_time"):
            assert getattr(seen.readings, name) == Idle(), name

    play(scenario)
