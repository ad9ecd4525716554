"""MN-2: the hit-rate gauge is gone; the ratio of two counters is easy to write upside down."""

from __future__ import annotations

import logging

import pytest
from evictune.api.observation import Idle, Unknown, Value
from evictune.api.reasons import Reason

from tests.support.field_case import Scene, engine_page, play


def page(hits: float, queries: float) -> str:
    return engine_page(prefix_cache_hits_total=hits, prefix_cache_queries_total=queries)


def test_the_ratio_is_that_of_the_window_and_undefined_without_queries() -> None:
    async def scenario(scene: Scene) -> None:
        for after, counts in ((0, (1000, 2000)), (300, (1300, 3000)), (300, (1300, 3000))):
            scene.page("owl-8b-a", page(*counts))
            seen = await scene.look(after)
            if after and scene.now == 300:
                assert seen.readings.hit_ratio == Value(0.3)
        assert seen.readings.hit_ratio == Idle()
        assert seen.status["observed"]["hitRatio"] == "Idle"

    play(scenario)


def test_pods_are_pooled_before_the_ratio() -> None:
    async def scenario(scene: Scene) -> None:
        for pod in scene.pods:
            scene.page(pod, page(0, 0))
        await scene.look()
        scene.page("owl-8b-a", page(9000, 10000))
        scene.page("owl-8b-b", page(10, 1000))
        ratio = (await scene.look(300)).readings.hit_ratio
        assert isinstance(ratio, Value)
        assert ratio.value == pytest.approx(0.819, abs=5e-4)

    play(scenario, "owl-8b-a", "owl-8b-b")


def test_a_ratio_above_one_is_told_loudly_and_not_used(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(scene: Scene) -> None:
        scene.page("owl-8b-a", page(0, 0))
        await scene.look()
        scene.page("owl-8b-a", page(1000, 300))
        seen = await scene.look(300)
        assert isinstance(seen.readings.hit_ratio, Unknown)
        assert seen.readings.hit_ratio.reason is Reason.OUT_OF_RANGE
        assert seen.status["observed"]["hitRatio"] == "Unknown"

    with caplog.at_level(logging.ERROR):
        play(scenario)
    assert "cannot exceed 1" in caplog.text


def test_a_store_s_increases_give_the_same() -> None:
    async def scenario(scene: Scene) -> None:
        scene.use_store()
        scene.store.put("vllm:prefix_cache_hits_total", "300")
        scene.store.put("vllm:prefix_cache_queries_total", "1000")
        assert (await scene.look()).readings.hit_ratio == Value(0.3)

    play(scenario)


def test_hits_of_one_name_are_not_divided_by_queries_of_another_engine_s() -> None:
    """A pod without the counters makes the ratio Unknown, not that of the others."""

    async def scenario(scene: Scene) -> None:
        for after, counts in ((0, (0, 0)), (300, (300, 1000))):
            scene.page("owl-8b-a", page(*counts))
            scene.page("owl-8b-b", engine_page(gpu_cache_usage_perc=0.2))
            seen = await scene.look(after)
        assert isinstance(seen.readings.hit_ratio, Unknown)
        assert seen.readings.hit_ratio.reason is Reason.INCOMPLETE_COVERAGE
        assert "owl-8b-b" in seen.readings.hit_ratio.message

    play(scenario, "owl-8b-a", "owl-8b-b")
