"""Of VS's kind: too few requests for a quantile, and intervals that cannot tell."""

from __future__ import annotations

import pytest
from evictune.api.observation import Unknown
from evictune.api.reasons import Reason

from tests.support.field_case import Scene, case_policy, engine_page, play, ttft_page

CALM = {
    "kv_cache_usage_perc": 0.3,
    "num_requests_running": 1,
    "num_requests_waiting": 0,
    "num_preemptions_total": 0,
}


def test_below_the_minimum_there_is_no_quantile_and_no_verdict() -> None:
    async def scenario(scene: Scene) -> None:
        scene.policy = case_policy(ttft={"minRequests": 300})
        for after, share in ((0, 0), (60, 1)):
            counts = {"0.5": 0, "5": 299 * share, "+Inf": 299 * share}
            scene.page("owl-8b-a", engine_page(**CALM) + ttft_page(counts))
            seen = await scene.look(after)
        assert isinstance(seen.readings.ttft, Unknown)
        assert seen.readings.ttft.reason is Reason.TOO_FEW_SAMPLES
        assert "299 requests" in seen.readings.ttft.message
        assert "needs 300 (slo.ttft.minRequests)" in seen.readings.ttft.message
        # Neither a fault nor a verdict: it only needs time.
        assert seen.condition("MetricsAvailable")[:2] == ("Unknown", "TooFewSamples")
        assert seen.condition("SLOMet")[0] == "Unknown"
        assert not seen.acts

    play(scenario)


@pytest.mark.parametrize(
    ("bounds", "verdict"),
    [
        # p99 <= 0.8 s, tolerance a tenth: the interval must clear 0.72 or 0.88.
        (("0.5", "0.7"), ("True", "ObjectivesMet")),
        (("0.9", "1.5"), ("False", "ObjectiveViolated")),
        (("0.5", "1.5"), ("Unknown", "BucketTooCoarse")),
        (("0.7", "0.85"), ("Unknown", "ObjectiveUncertain")),
        (("0.75", "0.85"), ("Unknown", "ObjectiveUncertain")),
    ],
)
def test_met_violated_or_uncertain(bounds: tuple[str, str], verdict: tuple[str, str]) -> None:
    async def scenario(scene: Scene) -> None:
        lower, upper = bounds
        for after, share in ((0, 0), (60, 1)):
            counts = {"0.1": 0, lower: 10 * share, upper: 400 * share, "+Inf": 400 * share}
            scene.page("owl-8b-a", engine_page(**CALM) + ttft_page(counts))
            seen = await scene.look(after)
        assert seen.condition("SLOMet")[:2] == verdict

    play(scenario)
