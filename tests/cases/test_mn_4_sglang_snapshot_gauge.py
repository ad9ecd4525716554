"""MN-4: SGLang's hit-rate gauge is a snapshot, once in percent; pressure shows elsewhere."""

from __future__ import annotations

from evictune.api.observation import Unknown, Value
from evictune.api.reasons import Reason
from evictune.observe.dialects import Engine

from tests.support.field_case import TICK, Scene, play

TICKS = (
    (0.62, 0.90, 2),
    (0.0, 0.91, 6),
    (0.0, 0.93, 11),
    (0.55, 0.93, 14),
    (87.6, 0.94, 14),
)


def page(hit_rate: float, usage: float, queue: int) -> str:
    labels = '{model_name="owl-8b",engine_type="unified",tp_rank="0",pp_rank="0"}'
    return (
        f"sglang:cache_hit_rate{labels} {hit_rate}\nsglang:token_usage{labels} {usage}\n"
        f"sglang:num_queue_reqs{labels} {queue}\nsglang:num_running_reqs{labels} 8\n"
    )


def test_pressure_comes_from_usage_and_queue_and_the_snapshot_is_never_read() -> None:
    async def scenario(scene: Scene) -> None:
        for tick in TICKS:
            scene.page("owl-8b-a", page(*tick))
            seen = await scene.look(TICK)
            assert seen.readings.kv_usage == Value(tick[1])
            assert seen.readings.waiting == Value(tick[2])
            ratio = seen.readings.hit_ratio
            assert isinstance(ratio, Unknown)
            assert not seen.acts
        assert "hitRatio" not in seen.readings.metric_names

    play(scenario, engine=Engine.SGLANG)


def test_an_objective_without_its_counter_is_not_measurable_and_not_met() -> None:
    async def scenario(scene: Scene) -> None:
        for tick in TICKS:
            scene.page("owl-8b-a", page(*tick))
            seen = await scene.look(TICK)
        preemptions = seen.readings.preemptions
        assert isinstance(preemptions, Unknown)
        assert preemptions.reason is Reason.NOT_MEASURABLE
        assert "not every release of sglang" in preemptions.message
        assert seen.status["observed"]["preemptionsPerSecond"] == "Unknown"
        assert seen.condition("SLOMet")[0] != "True"
        assert "preemptions" in seen.condition("MetricsAvailable")[2]

    play(scenario, engine=Engine.SGLANG)


def test_retractions_are_preemptions_where_the_release_counts_them() -> None:
    async def scenario(scene: Scene) -> None:
        for after, count in ((0, 4), (60, 34)):
            counter = f'sglang:num_retracted_requests_total{{tp_rank="0"}} {count}\n'
            # Every tensor-parallel rank tells the same.
            scene.page("owl-8b-a", page(*TICKS[0]) + counter + counter.replace('"0"', '"1"'))
            seen = await scene.look(after)
        assert seen.readings.preemptions == Value(0.5)

    play(scenario, engine=Engine.SGLANG)


def test_cached_and_prompt_tokens_give_the_ratio_and_their_parts_are_summed() -> None:
    async def scenario(scene: Scene) -> None:
        for after, (device, host, prompt) in ((0, (0, 0, 0)), (60, (400, 100, 1000))):
            cached = "".join(
                f'sglang:cached_tokens_total{{model_name="owl-8b",cache_source="{source}"}} {n}\n'
                for source, n in (("device", device), ("host", host))
            )
            queries = f'sglang:prompt_tokens_total{{model_name="owl-8b"}} {prompt}\n'
            scene.page("owl-8b-a", page(*TICKS[0]) + cached + queries)
            seen = await scene.look(after)
        assert seen.readings.hit_ratio == Value(0.5)

    play(scenario, engine=Engine.SGLANG)


def test_the_shares_of_priorities_are_not_added_to_the_whole() -> None:
    async def scenario(scene: Scene) -> None:
        lines = [
            f'sglang:num_queue_reqs{{model_name="owl-8b",priority="{priority}"}} {n}\n'
            for priority, n in (("1", 9), ("", 14), ("2", 5))
        ]
        scene.page("owl-8b-a", "".join(lines))
        assert (await scene.look()).readings.waiting == Value(14)

    play(scenario, engine=Engine.SGLANG)
