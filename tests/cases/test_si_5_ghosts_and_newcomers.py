"""SI-5: series of dead pods linger in the store, and a new pod has none yet."""

from __future__ import annotations

from evictune.api.observation import Unknown, Value
from evictune.api.reasons import Reason

from tests.support.field_case import Scene, engine_page, play, ttft_page

KV = "vllm:kv_cache_usage_perc"


def test_a_ghost_is_ignored_and_a_newcomer_is_unknown_until_its_series_appears() -> None:
    async def scenario(scene: Scene) -> None:
        scene.use_store()
        scene.store.put(KV, "0.40", "owl-8b-a")
        scene.store.put(KV, "0.99", "owl-8b-zz")
        seen = await scene.look()
        reading = seen.readings.kv_usage
        assert isinstance(reading, Unknown)
        assert reading.reason is Reason.INCOMPLETE_COVERAGE
        assert "1 of 2 ready pods" in reading.message
        assert "owl-8b-b" in reading.message
        usages = {engine.pod: engine.kv_usage for engine in seen.readings.engines}
        assert usages["owl-8b-a"] == Value(0.4)
        assert isinstance(usages["owl-8b-b"], Unknown)
        assert "owl-8b-zz" not in usages
        assert seen.status["observed"]["kvCacheUsage"] == "Unknown"
        assert not seen.acts
        scene.store.put(KV, "0.10", "owl-8b-b")
        assert (await scene.look(after=30)).readings.kv_usage == Value(0.4)

    play(scenario, "owl-8b-a", "owl-8b-b")


def test_all_ready_pods_without_series_is_no_empty_fleet() -> None:
    async def scenario(scene: Scene) -> None:
        scene.use_store()
        for base in (KV, "vllm:num_requests_running"):
            scene.store.put(base, "0", "owl-8b-zz")
        seen = await scene.look()
        assert isinstance(seen.readings.running, Unknown)
        assert seen.condition("MetricsAvailable")[1] == "NoSeriesForTarget"

    play(scenario)


def test_a_pod_replaced_under_its_own_name_starts_anew() -> None:
    """A StatefulSet's pod keeps its name: what its predecessor counted is not its growth."""

    async def scenario(scene: Scene) -> None:
        scene.page("owl-8b-0", engine_page(num_preemptions_total=900) + ttft_page({"+Inf": 900}))
        await scene.look()
        scene.generation += 1
        scene.page("owl-8b-0", engine_page(num_preemptions_total=1000) + ttft_page({"+Inf": 1000}))
        seen = await scene.look(after=60)
        for reading in (seen.readings.preemptions, seen.readings.ttft):
            assert isinstance(reading, Unknown)
            assert reading.reason is Reason.WARMING_UP
        scene.page("owl-8b-0", engine_page(num_preemptions_total=1030))
        assert (await scene.look(after=60)).readings.preemptions == Value(0.5)

    play(scenario, "owl-8b-0")


def test_a_pod_that_went_is_missing_at_once_and_its_counts_with_it() -> None:
    async def scenario(scene: Scene) -> None:
        for grown in (0, 30):
            for pod in ("owl-8b-a", "owl-8b-b"):
                faster = 2 if pod == "owl-8b-b" else 1
                scene.page(pod, engine_page(num_preemptions_total=grown * faster))
            seen = await scene.look(after=60)
        assert seen.readings.preemptions == Value(1.0)
        scene.pods.remove("owl-8b-b")
        scene.page("owl-8b-a", engine_page(num_preemptions_total=60))
        assert (await scene.look(after=60)).readings.preemptions == Value(0.5)

    play(scenario, "owl-8b-a", "owl-8b-b")
