"""SI-1: with data parallelism one pod has a series for each engine rank."""

from __future__ import annotations

import pytest
from evictune.api.observation import Interval, Value
from evictune.observe.dialects import Engine

from tests.support.field_case import Scene, engine_page, play, ttft_page

BUSY = {"0.25": 900, "0.5": 980, "1": 1000, "5": 1000, "+Inf": 1000}
SLOW = {"0.25": 0, "0.5": 0, "1": 10, "5": 20, "+Inf": 20}


def rank_page(engine: str, usage: float, preemptions: float) -> str:
    labels = f'engine="{engine}",model_name="owl-8b"'
    return engine_page(labels, kv_cache_usage_perc=usage, num_preemptions_total=preemptions)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_hottest_rank_counts_whichever_line_comes_first(order: tuple[int, int]) -> None:
    async def scenario(scene: Scene) -> None:
        for after, grown in ((0, (40, 5)), (60, (70, 5))):
            lines = [rank_page("0", 0.97, grown[0]), rank_page("1", 0.12, grown[1])]
            scene.page("owl-8b-0", "".join(lines[i] for i in order))
            seen = await scene.look(after)
        assert seen.readings.kv_usage == Value(0.97)
        assert seen.readings.preemptions == Value(0.5)
        usages = {engine.engine: engine.kv_usage for engine in seen.readings.engines}
        assert usages == {"0": Value(0.97), "1": Value(0.12)}
        assert seen.status["observed"]["kvCacheUsage"] == "0.97"

    play(scenario, "owl-8b-0")


def test_the_quantile_is_taken_after_pooling() -> None:
    async def scenario(scene: Scene) -> None:
        for after, share in ((0, 0), (60, 1)):
            for pod, counts in (("a", BUSY), ("b", SLOW)):
                grown = {le: count * share for le, count in counts.items()}
                scene.page(f"owl-8b-{pod}", ttft_page(grown))
            seen = await scene.look(after)
        ttft = seen.readings.ttft
        assert isinstance(ttft, Interval)
        assert (ttft.lower, ttft.upper, ttft.requests) == (0.5, 1.0, 1020)
        assert ttft.estimate == pytest.approx(0.997, abs=5e-4)

    play(scenario, "owl-8b-a", "owl-8b-b")


def test_a_store_s_ranks_are_told_apart_too() -> None:
    async def scenario(scene: Scene) -> None:
        scene.use_store()
        for engine, usage, grown in (("1", "0.12", "0"), ("0", "0.97", "150")):
            scene.store.put("vllm:kv_cache_usage_perc", usage, engine=engine)
            scene.store.put("vllm:num_preemptions_total", grown, engine=engine)
        seen = await scene.look()
        assert seen.readings.kv_usage == Value(0.97)
        assert seen.readings.preemptions == Value(0.5)

    play(scenario)


def test_sglang_s_ranks_have_a_label_of_their_own_and_tensor_ranks_repeat_them() -> None:
    async def scenario(scene: Scene) -> None:
        lines = [
            f'sglang:num_running_reqs{{dp_rank="{dp}",tp_rank="{tp}"}} {running}\n'
            f'sglang:token_usage{{dp_rank="{dp}",tp_rank="{tp}"}} {usage}\n'
            for dp, running, usage in ((0, 5, 0.2), (1, 7, 0.9))
            for tp in (0, 1)
        ]
        scene.page("owl-8b-a", "".join(lines))
        seen = await scene.look()
        assert seen.readings.running == Value(12)
        assert seen.readings.kv_usage == Value(0.9)

    play(scenario, engine=Engine.SGLANG)
