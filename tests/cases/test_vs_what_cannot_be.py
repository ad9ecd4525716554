"""Of VS's kind: NaN, infinities, percent for a fraction, seconds for milliseconds."""

from __future__ import annotations

import pytest
from evictune.api.observation import Unknown, Value
from evictune.api.quantity import FieldError
from evictune.api.reasons import Reason

from tests.support.field_case import Scene, case_policy, engine_page, play

VALUES = [
    ("NaN", Reason.NOT_FINITE),
    ("+Inf", Reason.NOT_FINITE),
    ("-Inf", Reason.NOT_FINITE),
    ("-0.1", Reason.OUT_OF_RANGE),
    ("1.2", Reason.OUT_OF_RANGE),
    ("87.6", Reason.OUT_OF_RANGE),
]


@pytest.mark.parametrize(("value", "reason"), VALUES)
@pytest.mark.parametrize("store", [False, True], ids=["pages", "store"])
def test_a_usage_that_cannot_be_is_unknown(value: str, reason: Reason, store: bool) -> None:
    async def scenario(scene: Scene) -> None:
        line = 'vllm:kv_cache_usage_perc{engine="0"} '
        scene.page("owl-8b-a", line + "0.4\n")
        scene.page("owl-8b-b", line + value + "\n")
        if store:
            scene.use_store()
            scene.store.put("vllm:kv_cache_usage_perc", "0.4", "owl-8b-a")
            scene.store.put("vllm:kv_cache_usage_perc", value, "owl-8b-b")
        seen = await scene.look()
        reading = seen.readings.kv_usage
        assert isinstance(reading, Unknown)
        # A value below zero is not the hottest; whoever says it is not believed all the same.
        assert reading.reason is reason
        assert "owl-8b-b" in reading.message
        assert seen.status["observed"]["kvCacheUsage"] == "Unknown"
        usages = {engine.pod: engine.kv_usage for engine in seen.readings.engines}
        assert usages["owl-8b-a"] == Value(0.4)
        assert isinstance(usages["owl-8b-b"], Unknown)
        assert not seen.acts

    play(scenario, "owl-8b-a", "owl-8b-b")


@pytest.mark.parametrize("order", [("NaN", "0.5"), ("0.5", "NaN")])
def test_nan_is_not_hidden_by_what_repeats_it(order: tuple[str, str]) -> None:
    async def scenario(scene: Scene) -> None:
        lines = [f'vllm:num_requests_running{{pid="{i}"}} {v}\n' for i, v in enumerate(order)]
        scene.page("owl-8b-a", "".join(lines))
        reading = (await scene.look()).readings.running
        assert isinstance(reading, Unknown)
        assert reading.reason is Reason.NOT_FINITE

    play(scenario)


@pytest.mark.parametrize("value", ["NaN", "+Inf"])
def test_a_counter_that_is_no_number_is_unknown_and_comes_back(value: str) -> None:
    async def scenario(scene: Scene) -> None:
        name = 'vllm:num_preemptions_total{engine="0"} '
        for count, known in (("0", False), (value, False), ("30", False)):
            scene.page("owl-8b-a", f"{name}{count}\n")
            seen = await scene.look(after=60)
            assert isinstance(seen.readings.preemptions, Value) is known
        for count in ("60", "90", "120", "150", "180", "210", "240", "270", "300", "330", "360"):
            scene.page("owl-8b-a", f"{name}{count}\n")
            seen = await scene.look(after=60)
        assert seen.readings.preemptions == Value(0.5)

    play(scenario)


def test_a_hit_ratio_in_percent_is_not_read_as_a_ratio() -> None:
    async def scenario(scene: Scene) -> None:
        page = engine_page(gpu_prefix_cache_hit_rate=61.0, kv_cache_usage_perc=0.3)
        scene.page("owl-8b-a", page)
        await scene.look()
        seen = await scene.look(after=60)
        assert isinstance(seen.readings.hit_ratio, Unknown)

    play(scenario)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"slo": {"maxKVCacheUsage": "92"}}, "maxKVCacheUsage"),
        ({"ttft": {"quantile": "99"}}, "quantile"),
        ({"ttft": {"threshold": 800}}, "threshold"),
        ({"ttft": {"threshold": "800"}}, "threshold"),
        ({"behavior": {"tolerance": "10"}}, "tolerance"),
    ],
)
def test_percent_and_bare_numbers_in_the_resource_are_refused(
    changes: dict[str, object], words: str
) -> None:
    """92 could be a mistake for 0.92, 800 for seconds: neither is guessed."""
    if "slo" in changes:
        limit = changes["slo"]
        assert isinstance(limit, dict)
        base = {"quantile": "0.99", "threshold": "800ms", "window": "5m", "minRequests": 50}
        changes = {"slo": {"ttft": base, **limit}}
    with pytest.raises(FieldError, match=words):
        case_policy(**changes)
