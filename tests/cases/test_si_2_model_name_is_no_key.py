"""SI-2: the model's id in a resource is not the label model_name; series join by pod."""

from __future__ import annotations

from evictune.api.observation import Unknown, Value
from evictune.api.reasons import Reason

from tests.support.field_case import Scene, engine_page, play


def test_whatever_the_model_is_called_the_pod_s_series_are_found() -> None:
    async def scenario(scene: Scene) -> None:
        scene.use_store()
        for name in ("owl", "owl-chat", "acme/owl-8b-chat"):
            scene.store.vectors.clear()
            scene.store.put("vllm:kv_cache_usage_perc", "0.88", model_name=name)
            assert (await scene.look(after=60)).readings.kv_usage == Value(0.88)
        asked = [each.parameters.get("query", "") for each in scene.server.asked]
        assert not any("model_name=" in query for query in asked)

    play(scenario)


def test_a_selector_that_matches_nothing_is_a_fault_that_names_what_is_there() -> None:
    """Only the pods' names are looked for, so what can be wrong is the pods' labels."""

    async def scenario(scene: Scene) -> None:
        scene.use_store()
        scene.store.put("vllm:kv_cache_usage_perc", "0.88", "owl-7c9d", model_name="owl")
        seen = await scene.look()
        reading = seen.readings.kv_usage
        assert isinstance(reading, Unknown)
        assert reading.reason is Reason.NO_SERIES
        status, reason, message = seen.condition("MetricsAvailable")
        assert (status, reason) == ("False", "NoSeriesForTarget")
        assert "serve-a/owl-8b-a" in message
        assert "it has series of serve-a/owl-7c9d" in message
        assert seen.condition("SLOMet")[0] == "Unknown"
        assert not seen.acts

    play(scenario)


def test_several_models_in_one_namespace_do_not_mix() -> None:
    """Two targets side by side, one hot: each policy sees its own pods alone."""

    async def scenario(scene: Scene) -> None:
        scene.use_store()
        scene.store.put("vllm:kv_cache_usage_perc", "0.40", "owl-8b-a", model_name="m")
        scene.store.put("vllm:kv_cache_usage_perc", "0.99", "wren-70b-a", model_name="m")
        assert (await scene.look()).readings.kv_usage == Value(0.4)
        scene.pods = ["wren-70b-a"]
        assert (await scene.look(after=60)).readings.kv_usage == Value(0.99)

    play(scenario)


def test_adapters_under_one_engine_are_parts_of_it() -> None:
    """An engine that labels requests with the adapter's name: their counts add up."""

    async def scenario(scene: Scene) -> None:
        for after, grown in ((0, 0.0), (60, 1.0)):
            pages = [
                engine_page(
                    f'engine="0",model_name="{name}"',
                    prefix_cache_hits_total=hits * grown,
                    prefix_cache_queries_total=queries * grown,
                    num_requests_running=running,
                    kv_cache_usage_perc=0.6,
                )
                for name, hits, queries, running in (("owl", 10, 1000, 3), ("sql", 9000, 10000, 4))
            ]
            scene.page("owl-8b-a", "".join(pages))
            seen = (await scene.look(after)).readings
        assert seen.hit_ratio == Value(9010 / 11000)
        assert seen.running == Value(7)
        assert seen.kv_usage == Value(0.6)
        assert len(seen.engines) == 1

    play(scenario)
