"""Of VS's kind: everything stands still although requests wait. That is not idleness."""

from __future__ import annotations

from evictune.api.observation import Idle

from tests.support.field_case import Scene, engine_page, play, ttft_page

COUNTS = {"0.25": 900, "0.5": 980, "1": 1000, "+Inf": 1000}


def page(running: float, waiting: float, share: float = 1.0) -> str:
    return engine_page(
        kv_cache_usage_perc=0.5,
        num_requests_running=running,
        num_requests_waiting=waiting,
        num_preemptions_total=12,
    ) + ttft_page({le: count * share for le, count in COUNTS.items()})


def test_requests_that_wait_for_a_first_token_in_vain_are_told() -> None:
    async def scenario(scene: Scene) -> None:
        scene.page("owl-8b-a", page(running=5, waiting=8))
        for _ in range(3):
            seen = await scene.look(after=60)
        assert seen.readings.ttft == Idle()
        assert seen.regime == "Stalled"
        assert (
            "8 requests wait, yet none got its first token within 5m"
            in seen.status["regime"]["message"]
        )
        assert seen.condition("SLOMet")[0] == "Unknown"
        assert not seen.acts
        scene.page("owl-8b-a", page(running=5, waiting=8, share=1.2))
        assert (await scene.look(after=60)).regime != "Stalled"

    play(scenario)


def test_long_answers_without_new_requests_are_idleness_of_prefill() -> None:
    async def scenario(scene: Scene) -> None:
        scene.page("owl-8b-a", page(running=5, waiting=0))
        for _ in range(3):
            seen = await scene.look(after=60)
        assert seen.regime == "Idle"

    play(scenario)
