"""Of MN's kind: what every release from vLLM 0.6 to 0.33 exposes, and what is then known.

The names of each release are those of its vllm/engine/metrics.py (V0) or
vllm/v1/metrics/loggers.py; 0.32 is also captured from a real engine (tests/data/exposition).
"""

from __future__ import annotations

import pytest
from evictune.api.observation import Unknown, Value
from evictune.api.reasons import Reason

from tests.support.field_case import Scene, engine_page, play

ALWAYS = {
    "num_requests_running": 3.0,
    "num_requests_waiting": 1.0,
    "num_preemptions_total": 60.0,
    "request_prompt_tokens_sum": 5000.0,
    "request_prompt_tokens_count": 10.0,
}
QUEUE = {"request_queue_time_seconds_sum": 5.0, "request_queue_time_seconds_count": 10.0}
PREFILL = {"request_prefill_time_seconds_sum": 2.0}
OLD_USAGE, NEW_USAGE = {"gpu_cache_usage_perc": 0.5}, {"kv_cache_usage_perc": 0.5}
OLD_HITS = {"gpu_prefix_cache_queries_total": 100.0, "gpu_prefix_cache_hits_total": 40.0}
NEW_HITS = {"prefix_cache_queries_total": 1600.0, "prefix_cache_hits_total": 640.0}
# Gauges that must not be read: of the process's life, -1 where prefix caching is off.
TRAPS = {"gpu_prefix_cache_hit_rate": -1.0, "cpu_cache_usage_perc": 0.99}
COMPUTED = {"request_prefill_kv_computed_tokens_sum": 600.0}

RELEASES = {
    "0.6.0": [OLD_USAGE, TRAPS],
    "0.6.5": [OLD_USAGE, TRAPS, QUEUE, PREFILL],
    "0.8": [OLD_USAGE, QUEUE, PREFILL, OLD_HITS],
    "0.10": [OLD_USAGE, NEW_USAGE, QUEUE, PREFILL, OLD_HITS, NEW_HITS],
    "0.11": [NEW_USAGE, QUEUE, PREFILL, NEW_HITS],
    "0.13": [NEW_USAGE, QUEUE, PREFILL, NEW_HITS, COMPUTED],
    "0.33": [NEW_USAGE, QUEUE, PREFILL, NEW_HITS, COMPUTED],
}
READABLE = {
    "queue_time": ("0.6.5", Value(0.5)),
    "hit_ratio": ("0.8", Value(0.4)),
    "prefill_rate": ("0.13", Value(300.0)),
    "uncached_tokens": ("0.13", Value(10.0)),
}


def page(release: str, grown: float) -> str:
    """The release's page; counters stand at `grown` times what they grew by in all."""
    values = dict(ALWAYS)
    for part in RELEASES[release]:
        values |= part
    counters = ("_total", "_sum", "_count")
    scaled = {k: v * grown if k.endswith(counters) else v for k, v in values.items()}
    engine = "" if release == "0.6.0" else 'engine="0",'  # V0 has no ranks.
    text = engine_page(f'{engine}model_name="owl-8b"', **scaled)
    if release == "0.33":
        source = f'vllm:prompt_tokens_by_source_total{{{engine}model_name="owl-8b",source='
        text += f'{source}"local_compute"}} {600 * grown}\n{source}"local_cache_hit"}} 9999\n'
    return text


@pytest.mark.parametrize("release", RELEASES)
def test_the_release_s_page_is_read_as_far_as_it_goes(release: str) -> None:
    async def scenario(scene: Scene) -> None:
        for after, grown in ((0, 0.0), (60, 1.0)):
            scene.page("owl-8b-a", page(release, grown))
            seen = (await scene.look(after)).readings
        assert seen.kv_usage == Value(0.5)
        assert (seen.running, seen.waiting) == (Value(3), Value(1))
        assert seen.preemptions == Value(1.0)
        assert seen.prompt_tokens_per_request == Value(500)
        order = list(RELEASES)
        for name, (since, value) in READABLE.items():
            reading = getattr(seen, name)
            if order.index(release) >= order.index(since):
                assert reading == value, name
            else:
                assert isinstance(reading, Unknown), name
                assert reading.reason is Reason.NOT_MEASURABLE, name
                assert "not every release of vllm exposes it" in reading.message

    play(scenario)


def test_a_fleet_in_the_middle_of_an_upgrade_is_pooled_over_both_names() -> None:
    async def scenario(scene: Scene) -> None:
        for after, grown in ((0, 0.0), (60, 1.0)):
            scene.page("owl-8b-a", page("0.8", grown))
            scene.page("owl-8b-b", page("0.33", grown))
            seen = (await scene.look(after)).readings
        assert seen.kv_usage == Value(0.5)
        assert seen.preemptions == Value(1.0)
        # What only the new release has is not known of the fleet.
        assert isinstance(seen.prefill_rate, Unknown)
        assert seen.prefill_rate.reason is Reason.INCOMPLETE_COVERAGE
        names = seen.metric_names["cache_hits"]
        assert names == "vllm:gpu_prefix_cache_hits_total, vllm:prefix_cache_hits_total"

    play(scenario, "owl-8b-a", "owl-8b-b")
