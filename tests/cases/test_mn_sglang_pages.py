"""Of MN's kind: SGLang's pages, of 0.4 and of late 0.5, are read as far as they go.

Names, labels and bucket bounds are those of the captured page in SGLang's
docs/references/production_metrics.md (0.4) and of its metrics_collector.py (0.5); the numbers are
ours. SGLang is observed only: it has no plugin, so no policy is ever active there.
"""

from __future__ import annotations

import pytest
from evictune.api.observation import Interval, Unknown, Value
from evictune.api.reasons import Reason
from evictune.observe.dialects import Engine

from tests.support.field_case import Scene, play

MODEL = 'model_name="acme/heron-70b"'
SCHEDULER = f'{MODEL},engine_type="unified",pp_rank="0",moe_ep_rank="0",tp_rank='
BOUNDS = {"0.1": 0, "0.4": 60, "0.8": 270, "1.0": 300, "+Inf": 300}


def old_page(share: float) -> str:
    lines = [
        f"sglang:token_usage{{{MODEL}}} 0.28",
        f"sglang:cache_hit_rate{{{MODEL}}} 0.007507552643049313",
        f"sglang:num_running_reqs{{{MODEL}}} 162.0",
        f"sglang:num_queue_reqs{{{MODEL}}} 2826.0",
        f"sglang:prompt_tokens_total{{{MODEL}}} {8.128902e06 + 1000 * share}",
    ]
    bucket = "sglang:time_to_first_token_seconds_bucket"
    lines += [f'{bucket}{{le="{le}",{MODEL}}} {n * share}' for le, n in BOUNDS.items()]
    return "\n".join(lines) + "\n"


def new_page(share: float) -> str:
    lines = []
    for rank in ("0", "1"):
        labels = f'{SCHEDULER}"{rank}"'
        lines += [
            f'sglang:token_usage{{{labels},priority=""}} 0.28',
            f'sglang:num_running_reqs{{{labels},priority=""}} 162',
            f'sglang:num_queue_reqs{{{labels},priority=""}} 2826',
            f"sglang:num_retracted_requests_total{{{labels}}} {30 * share}",
            f"sglang:queue_time_seconds_sum{{{labels}}} {600 * share}",
            f"sglang:queue_time_seconds_count{{{labels}}} {300 * share}",
            f'sglang:realtime_tokens_total{{{labels},mode="prefill_compute"}} {6000 * share}',
            f'sglang:realtime_tokens_total{{{labels},mode="prefill_cache"}} {99000 * share}',
        ]
    for streaming, part in (("true", 0.75), ("false", 0.25)):
        labels = f'{MODEL},is_streaming="{streaming}"'
        bucket = "sglang:time_to_first_token_seconds_bucket"
        lines += [f'{bucket}{{le="{le}",{labels}}} {n * part * share}' for le, n in BOUNDS.items()]
    lines.append(f"sglang:prompt_tokens_total{{{MODEL}}} {1000 * share}")
    for source, tokens in (("device", 300), ("host", 100), ("total", 50)):
        cached = f'sglang:cached_tokens_total{{{MODEL},cache_source="{source}"}}'
        lines.append(f"{cached} {tokens * share}")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("page", [old_page, new_page])
def test_what_every_release_has(page: object) -> None:
    assert callable(page)

    async def scenario(scene: Scene) -> None:
        for after, share in ((0, 0), (60, 1)):
            scene.page("owl-8b-a", page(share))
            seen = (await scene.look(after)).readings
        assert (seen.kv_usage, seen.running, seen.waiting) == (
            Value(0.28),
            Value(162),
            Value(2826),
        )
        assert isinstance(seen.ttft, Interval)
        assert (seen.ttft.lower, seen.ttft.upper, seen.ttft.requests) == (0.8, 1.0, 300)

    play(scenario, engine=Engine.SGLANG)


def test_what_came_with_0_5() -> None:
    async def scenario(scene: Scene) -> None:
        for after, share in ((0, 0), (60, 1)):
            scene.page("owl-8b-a", new_page(share))
            seen = (await scene.look(after)).readings
        assert seen.preemptions == Value(0.5)
        assert seen.queue_time == Value(2.0)
        assert seen.uncached_tokens == Value(100)
        assert seen.hit_ratio == Value(0.45)
        for reading in (seen.prefill_rate, seen.prompt_tokens_per_request):
            assert isinstance(reading, Unknown)
            assert reading.reason is Reason.NOT_MEASURABLE

    play(scenario, engine=Engine.SGLANG)


def test_before_the_first_request_there_is_no_histogram_and_that_is_no_fault() -> None:
    async def scenario(scene: Scene) -> None:
        scene.page("owl-8b-a", f"sglang:num_running_reqs{{{MODEL}}} 0\n")
        for _ in range(2):
            seen = await scene.look(after=60)
        assert isinstance(seen.readings.ttft, Unknown)
        assert seen.readings.ttft.reason is Reason.WARMING_UP
        assert "comes with the first request" in seen.readings.ttft.message

    play(scenario, engine=Engine.SGLANG)


def test_its_policy_is_never_active() -> None:
    async def scenario(scene: Scene) -> None:
        for after, share in ((0, 0), (60, 1), (60, 2)):
            scene.page("owl-8b-a", old_page(share))
            seen = await scene.look(after)
        assert not seen.acts
        assert seen.condition("PolicyActive")[0] == "False"

    play(scenario, engine=Engine.SGLANG)
