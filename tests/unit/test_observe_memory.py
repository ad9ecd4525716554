"""The memory fraction: what is in force by the engine, what became of an attempt by the plugin."""

from __future__ import annotations

from decimal import Decimal

import pytest
from evictune.api.observation import Interval, MemoryAttempt, Value

from tests.support.observed_fleet import PLUGIN, Fleet, capture, run, unknown

KNOBS = {"gpuMemoryUtilization": {"min": "0.8", "max": "0.94"}}
SERIES = """\
evictune_memory_eligible{reason="",message=""} 1
evictune_memory_fraction{source="manifest"} 0.85
evictune_memory_fraction{source="in-force"} 0.9
evictune_memory_attempt{state="confirmed",fraction="0.9",revision="12",reason=""} 1
"""
NONE = """\
evictune_memory_eligible{reason="NoStateFolder",message="no volume is mounted"} 0
evictune_memory_fraction{source="manifest"} 0.85
evictune_memory_attempt{state="none",fraction="",revision="",reason="NoStateFolder"} 1
"""


def test_the_engine_s_own_word_is_what_is_in_force() -> None:
    async def scenario(fleet: Fleet) -> None:
        (seen,) = (await fleet.observe()).engines
        # Of a real engine's page.
        text = capture("start")
        line = next(x for x in text.splitlines() if x.startswith("vllm:cache_config_info"))
        assert seen.fraction is not None
        assert f'gpu_memory_utilization="{seen.fraction}"' in line
        assert f'num_gpu_blocks="{seen.blocks}"' in line

    run(scenario)


@pytest.mark.parametrize("text", ["None", "", "nan", "$(GPU_FRAC)", "1.5", "-0.1", "1e999"])
def test_what_is_no_fraction_is_none(text: str) -> None:
    async def scenario(fleet: Fleet) -> None:
        page = f'vllm:cache_config_info{{engine="0",gpu_memory_utilization="{text}"}} 1\n'
        fleet.engine("owl-0", page)
        (seen,) = (await fleet.observe()).engines
        assert seen.fraction is None

    run(scenario)


def test_every_pod_by_itself_where_its_engines_may_restart() -> None:
    async def scenario(fleet: Fleet) -> None:
        fleet.plugin("owl-0", PLUGIN + SERIES)
        fleet.plugin("owl-1", PLUGIN + NONE)
        await fleet.observe(knobs=KNOBS)
        fleet.engine("owl-0", capture("loaded"))
        first, second = (await fleet.observe(after=30.0, knobs=KNOBS)).pods
        assert first.memory == MemoryAttempt(
            "", Decimal("0.85"), "confirmed", Decimal("0.9"), revision=12
        )
        assert second.memory == MemoryAttempt(
            "NoStateFolder: no volume is mounted", Decimal("0.85"), "none"
        )
        # One had traffic since, and the other none.
        assert isinstance(first.ttft, Interval)
        assert isinstance(first.hit_ratio, Value)
        assert not isinstance(second.ttft, Interval)
        assert (first.ready, first.restarts, first.uid) == (True, 0, "owl-0-1")

    run(scenario, "owl-0", "owl-1")


def test_an_older_plugin_says_nothing_of_memory() -> None:
    async def scenario(fleet: Fleet) -> None:
        (pod,) = (await fleet.observe(knobs=KNOBS)).pods
        assert pod.memory is None

    run(scenario)


def test_labels_that_are_no_numbers_are_a_page_that_cannot_be_read() -> None:
    async def scenario(fleet: Fleet) -> None:
        broken = SERIES.replace('fraction="0.9"', 'fraction="much"')
        fleet.plugin("owl-0", PLUGIN + broken)
        seen = await fleet.observe(knobs=KNOBS)
        assert seen.pods[0].memory is None
        assert "cannot be read" in unknown(seen.evicted_lru).message

    run(scenario)


def test_policies_without_the_knob_are_spared_the_work() -> None:
    async def scenario(fleet: Fleet) -> None:
        fleet.plugin("owl-0", PLUGIN + SERIES)
        assert (await fleet.observe()).pods == ()

    run(scenario)
