"""Of PA's kind: a store that is away does not send the operator to the engines unasked."""

from __future__ import annotations

from evictune.api.observation import Unknown, Value
from evictune.api.reasons import Reason
from evictune.api.sources import SourceDefinition, SourceKind
from evictune.observe.observer import Observer

from tests.support.field_case import PATIENCE, Scene, engine_page, play, ttft_page
from tests.support.page_server import Answer

CALM = {
    "kv_cache_usage_perc": 0.3,
    "num_requests_running": 1,
    "num_requests_waiting": 0,
    "num_preemptions_total": 0,
}


def page(share: float) -> str:
    return engine_page(**CALM) + ttft_page({"0.1": 0, "0.5": 400 * share, "+Inf": 400 * share})


def use(scene: Scene, fallback: str | None) -> None:
    kind, url = SourceKind.PROMETHEUS, scene.server.url
    store = SourceDefinition("default", kind, url=url, timeout=PATIENCE, fallback=fallback)
    engines = SourceDefinition("engines", SourceKind.DIRECT, timeout=PATIENCE)
    sources = {"default": store, "engines": engines}
    scene.observer = Observer(scene, sources, lambda: scene.now)


def test_without_a_fallback_the_engines_are_not_scraped() -> None:
    async def scenario(scene: Scene) -> None:
        use(scene, None)
        scene.page("owl-8b-a", page(0))
        scene.store.fault = Answer("down", status=503)
        seen = await scene.look()
        assert isinstance(seen.readings.kv_usage, Unknown)
        assert seen.readings.kv_usage.reason is Reason.SOURCE_UNAVAILABLE
        assert "/owl-8b-a/metrics" not in {asked.path for asked in scene.server.asked}

    play(scenario)


def test_a_named_fallback_is_read_while_the_store_is_away_and_it_is_said() -> None:
    async def scenario(scene: Scene) -> None:
        use(scene, "engines")
        scene.store.fault = Answer("down", status=503)
        for share in (0, 1):
            scene.page("owl-8b-a", page(share))
            seen = await scene.look(after=60)
        status, _, message = seen.condition("MetricsAvailable")
        assert status == "True"
        assert message.startswith("Source 'engines' is read in place of 'default': ")
        assert "status 503" in message
        assert seen.condition("SLOMet")[0] == "True"
        scene.store.fault = None
        scene.store.put("vllm:kv_cache_usage_perc", "0.55")
        seen = await scene.look(after=60)
        assert seen.readings.kv_usage == Value(0.55)
        assert seen.readings.fallback == ""

    play(scenario)


def test_a_store_that_answers_without_series_is_not_away() -> None:
    """An empty answer may be a wrong label: reading elsewhere would hide it."""

    async def scenario(scene: Scene) -> None:
        use(scene, "engines")
        scene.page("owl-8b-a", page(0))
        seen = await scene.look()
        assert seen.condition("MetricsAvailable")[1] == "NoSeriesForTarget"
        assert "/owl-8b-a/metrics" not in {asked.path for asked in scene.server.asked}

    play(scenario)
