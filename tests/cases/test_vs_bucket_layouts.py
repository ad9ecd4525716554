"""Of VS's kind: bounds spelled differently, and layouts that differ between pods of a rollout."""

from __future__ import annotations

import math

import pytest
from evictune.api.observation import Interval, Unknown
from evictune.api.reasons import Reason

from tests.support.field_case import Scene, play, ttft_page

TTFT = "vllm:time_to_first_token_seconds"


def test_1_and_1_0_are_one_bound_between_pods() -> None:
    async def scenario(scene: Scene) -> None:
        for after, share in ((0, 0), (60, 1)):
            for pod, one in (("owl-8b-a", "1"), ("owl-8b-b", "1.0")):
                counts = {"0.5": 10 * share, one: 50 * share, "+Inf": 50 * share}
                scene.page(pod, ttft_page(counts))
            ttft = (await scene.look(after)).readings.ttft
        assert isinstance(ttft, Interval)
        assert (ttft.lower, ttft.upper, ttft.requests) == (0.5, 1.0, 100)

    play(scenario, "owl-8b-a", "owl-8b-b")


@pytest.mark.parametrize(
    ("counts", "interval"),
    [
        # Two scrapers, one of each spelling, saw the same.
        ({"1": "99", "1.0": "100"}, (0.5, 1.0)),
        # The store was upgraded within the window: each spelling holds a part of it.
        ({"1": "40", "1.0": "60"}, (0.5, 2.5)),
    ],
)
def test_two_spellings_in_one_store(counts: dict[str, str], interval: tuple[float, float]) -> None:
    async def scenario(scene: Scene) -> None:
        scene.use_store()
        for le, count in ({"0.5": "10"} | counts | {"2.5": "100", "+Inf": "100"}).items():
            scene.store.put(TTFT, count, le=le)
        ttft = (await scene.look()).readings.ttft
        assert isinstance(ttft, Interval)
        assert (ttft.lower, ttft.upper, ttft.requests) == (*interval, 100)

    play(scenario)


def test_of_different_layouts_only_the_common_bounds_are_used() -> None:
    async def scenario(scene: Scene) -> None:
        old = {"0.25": 10, "0.5": 30, "1": 50, "2.5": 50, "+Inf": 50}
        new = {"0.2": 5, "0.4": 20, "0.8": 40, "1": 50, "2": 50, "+Inf": 50}
        for after, share in ((0, 0), (60, 1)):
            for pod, counts in (("owl-8b-a", old), ("owl-8b-b", new)):
                scene.page(pod, ttft_page({le: n * share for le, n in counts.items()}))
            ttft = (await scene.look(after)).readings.ttft
        assert isinstance(ttft, Interval)
        # All within the one common bound: where below it, the two cannot say together. That is
        # coarse, and no fairy tale of a first bucket.
        assert (ttft.lower, ttft.upper, ttft.requests) == (0.0, 1.0, 100)

    play(scenario, "owl-8b-a", "owl-8b-b")


def test_without_a_common_bound_the_quantile_is_unknown_not_one_pod_s() -> None:
    async def scenario(scene: Scene) -> None:
        for after, share in ((0, 0), (60, 1)):
            scene.page("owl-8b-a", ttft_page({"0.5": 40 * share, "+Inf": 50 * share}))
            scene.page("owl-8b-b", ttft_page({"0.4": 40 * share, "+Inf": 50 * share}))
            ttft = (await scene.look(after)).readings.ttft
        assert isinstance(ttft, Unknown)
        assert ttft.reason is Reason.BUCKET_TOO_COARSE
        assert "no finite bucket bound in common" in ttft.message

    play(scenario, "owl-8b-a", "owl-8b-b")


def test_a_page_without_its_last_bucket_is_no_histogram() -> None:
    async def scenario(scene: Scene) -> None:
        for after, share in ((0, 0), (60, 1)):
            scene.page("owl-8b-a", ttft_page({"0.5": 40 * share, "1": 50 * share}))
            ttft = (await scene.look(after)).readings.ttft
        assert isinstance(ttft, Unknown)

    play(scenario)


def test_bounds_are_ordered_as_numbers() -> None:
    async def scenario(scene: Scene) -> None:
        counts = {"10.0": 97, "0.5": 10, "+Inf": 100, "2.5": 60}
        for after, share in ((0, 0), (60, 1)):
            scene.page("owl-8b-a", ttft_page({le: n * share for le, n in counts.items()}))
            ttft = (await scene.look(after)).readings.ttft
        assert isinstance(ttft, Interval)
        assert (ttft.lower, ttft.upper) == (10.0, math.inf)

    play(scenario)
