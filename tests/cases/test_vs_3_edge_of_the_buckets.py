"""VS-3: a quantile that sticks at the edge of the buckets."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest
from evictune.api.observation import Idle, Interval, Unknown
from evictune.api.reasons import Reason

from tests.support.field_case import Scene, Seen, case_policy, engine_page, play, ttft_page

SATURATED = {"0.1": 10, "0.5": 40, "1": 60, "5": 80, "10": 90, "+Inf": 100}
FAIRY_TALE = {"0.001": 208, "0.005": 208, "0.1": 208, "+Inf": 208}
CALM = {"kv_cache_usage_perc": 0.3, "num_requests_running": 1, "num_requests_waiting": 0}


async def window(scene: Scene, counts: Mapping[str, float]) -> Seen:
    """A look at a window in which the buckets grew by these counts."""
    for after, share in ((0, 0), (60, 1)):
        grown = {le: count * share for le, count in counts.items()}
        scene.page("owl-8b-a", engine_page(**CALM, num_preemptions_total=0) + ttft_page(grown))
        seen = await scene.look(after)
    return seen


def test_above_the_top_bucket_it_is_at_least_that_and_violated() -> None:
    async def scenario(scene: Scene) -> None:
        seen = await window(scene, SATURATED)
        ttft = seen.readings.ttft
        assert isinstance(ttft, Interval)
        assert (ttft.lower, ttft.upper) == (10.0, math.inf)
        assert seen.condition("SLOMet")[:2] == ("False", "ObjectiveViolated")
        assert "at least 10s" in seen.condition("SLOMet")[2]
        assert seen.status["observed"]["ttft"]["upper"] == "+Inf"

    play(scenario)


def test_the_share_above_the_objective_is_known_where_the_quantile_is_not() -> None:
    async def scenario(scene: Scene) -> None:
        scene.policy = case_policy(ttft={"threshold": "1s"})
        ttft = (await window(scene, SATURATED)).readings.ttft
        assert isinstance(ttft, Interval)
        assert ttft.above_lower == pytest.approx(0.4)
        assert ttft.above_upper == pytest.approx(0.4)

    play(scenario)


def test_everything_in_the_first_bucket_says_nothing() -> None:
    async def scenario(scene: Scene) -> None:
        seen = await window(scene, FAIRY_TALE)
        assert isinstance(seen.readings.ttft, Unknown)
        assert seen.readings.ttft.reason is Reason.IMPLAUSIBLE
        assert seen.condition("SLOMet")[0] == "Unknown"

    play(scenario)


def test_no_observation_at_all_is_idle() -> None:
    async def scenario(scene: Scene) -> None:
        assert (await window(scene, dict.fromkeys(SATURATED, 0))).readings.ttft == Idle()

    play(scenario)


def test_an_objective_above_the_top_bucket_is_said_not_to_be_measurable() -> None:
    async def scenario(scene: Scene) -> None:
        seen = await window(scene, {"0.1": 10, "0.25": 40, "0.5": 60, "+Inf": 100})
        status, reason, message = seen.condition("SLOMet")
        assert (status, reason) == ("Unknown", "BucketTooCoarse")
        assert "bucket spans the threshold 800ms" in message
        assert not seen.acts

    play(scenario)
