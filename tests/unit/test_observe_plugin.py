"""What the plugin's pages say, and what must not be taken for an acknowledgement."""

from __future__ import annotations

import asyncio
import time

from evictune.api.knobs import KnobValues
from evictune.api.observation import Observation, Value
from evictune.api.reasons import Reason

from tests.support.observed_fleet import PLUGIN, Fleet, capture, counted, run, unknown

EVICTED = 'evictune_evicted_blocks_total{{engine="{}",region="protected"}} {}\n'
RECOMPUTED = 'evictune_recomputed_tokens_total{{engine="{}"}} {}\n'


def ranks(line: str, first: int, second: int) -> str:
    """A page on which two ranks each have a sample of one series."""
    return PLUGIN + line.format("1", first) + line.format("2", second)


def test_the_real_plugin_s_pages_tell_what_is_in_force_and_what_was_evicted() -> None:
    async def scenario(fleet: Fleet) -> None:
        fleet.plugin("owl-0", capture("start", "plugin"))
        (stock,) = (await fleet.observe()).engines
        assert (stock.in_force, stock.revision, stock.eligible) == (KnobValues(None), 0, True)
        fleet.plugin("owl-0", capture("loaded", "plugin"))
        (tlru,) = (await fleet.observe(after=30.0)).engines
        assert (tlru.in_force, tlru.revision, tlru.eligible) == (KnobValues(128, 64), 7, True)
        assert tlru.refused_document == ""
        fleet.plugin("owl-0", capture("later", "plugin"))
        seen = await fleet.observe(after=20.0)
        (refusing,) = seen.engines
        assert (refusing.in_force, refusing.revision) == (KnobValues(128, 64), 7)
        assert refusing.refused_document.startswith("Malformed: ")
        for region, reading in (
            ("lru", seen.evicted_lru),
            ("tel-safe", seen.evicted_tel_safe),
            ("protected", seen.evicted_protected),
        ):
            sample = f'evictune_evicted_blocks_total.*region="{region}"'
            assert reading == Value(counted("later", sample, "plugin"))
        assert isinstance(seen.evicted_protected, Value)
        assert seen.evicted_protected.value > 0

    run(scenario)


def test_a_rank_that_restarts_alone_does_not_count_the_other_rank_anew() -> None:
    async def scenario(fleet: Fleet) -> None:
        fleet.plugin("owl-0", ranks(EVICTED, 500, 100))
        await fleet.observe()
        fleet.plugin("owl-0", ranks(EVICTED, 510, 4))
        seen = await fleet.observe(after=30.0)
        assert seen.evicted_protected == Value(10 + 4)

    run(scenario)


def test_tokens_computed_again_are_summed_over_the_ranks() -> None:
    async def scenario(fleet: Fleet) -> None:
        fleet.plugin("owl-0", ranks(RECOMPUTED, 500, 100))
        await fleet.observe()
        fleet.plugin("owl-0", ranks(RECOMPUTED, 660, 132))
        seen = await fleet.observe(after=30.0)
        assert seen.recomputed_tokens == Value(160 + 32)

    run(scenario)


def test_a_plugin_that_does_not_count_them_computes_nothing_like_zero_again() -> None:
    async def scenario(fleet: Fleet) -> None:
        fleet.plugin("owl-0", PLUGIN)
        await fleet.observe()
        seen = await fleet.observe(after=30.0)
        assert isinstance(seen.evicted_lru, Value)
        assert unknown(seen.recomputed_tokens).reason is Reason.NOT_MEASURABLE

    run(scenario)


def test_without_the_plugin_nothing_is_said_to_be_in_force() -> None:
    async def scenario(fleet: Fleet) -> None:
        del fleet.pages["/owl-0/plugin"]
        await fleet.observe()
        seen = await fleet.observe(after=30.0)
        (engine,) = seen.engines
        assert engine.in_force is engine.revision is engine.eligible is None
        assert unknown(seen.evicted_protected).reason is Reason.NO_SERIES
        assert seen.uncached_tokens == Value(0)

    run(scenario)


def test_stock_lru_refusals_and_ranks_as_the_plugin_tells_them() -> None:
    stock = 'policy="lru",xi_tokens="",q_hat_tokens="",revision="0"'
    page = (
        f'evictune_policy_info{{{stock},engine="0"}} 1\n'
        f'evictune_policy_info{{{stock},engine="1"}} 1\n'
        'evictune_engine_eligible{engine="0",reason=""} 1\n'
        'evictune_engine_eligible{engine="1",reason="PrefixCachingDisabled"} 0\n'
        'evictune_refused_document_info{engine="0",reason="OutOfRange",message="xiTokens: -1"} 1\n'
    )

    async def scenario(fleet: Fleet) -> None:
        fleet.plugin("owl-0", page)
        first, second = (await fleet.observe()).engines
        assert first.in_force == second.in_force == KnobValues(None)
        assert (first.revision, first.eligible) == (0, True)
        assert first.refused_document == "OutOfRange: xiTokens: -1"
        assert (second.engine, second.eligible) == ("1", False)
        assert second.ineligible_reason == "PrefixCachingDisabled"

    run(scenario)


def test_a_broken_plugin_page_is_no_acknowledgement() -> None:
    async def scenario(fleet: Fleet) -> None:
        fleet.plugin("owl-0", PLUGIN.replace('revision="7"', 'revision="x"'))
        seen = await fleet.observe()
        assert seen.engines[0].revision is None
        assert "cannot be read" in unknown(seen.evicted_lru).message

    run(scenario)


def test_the_plugin_is_read_even_when_the_source_is_not_defined() -> None:
    async def scenario(fleet: Fleet) -> None:
        seen = await fleet.observe(source="wren")
        reading = unknown(seen.ttft)
        assert reading.reason is Reason.SOURCE_UNDEFINED
        assert "'wren' is not defined; there are: default" in reading.message
        assert seen.engines[0].revision == 7

    run(scenario)


def test_a_page_that_takes_long_to_parse_holds_up_nothing_else() -> None:
    name = "evictune_evicted_blocks_total"
    lines = (f'{name}{{engine="0",region="lru",n="{n}"}} 1\n' for n in range(30_000))
    page = PLUGIN + "".join(lines)

    async def longest_pause(looking: asyncio.Task[Observation]) -> float:
        longest, before = 0.0, time.monotonic()
        while not looking.done():
            await asyncio.sleep(0)
            longest, before = max(longest, time.monotonic() - before), time.monotonic()
        return longest

    async def scenario(fleet: Fleet) -> None:
        fleet.plugin("owl-0", page)
        began = time.monotonic()
        looking = asyncio.create_task(fleet.observe())
        pause = await longest_pause(looking)
        assert (await looking).engines[0].revision == 7
        assert pause < (time.monotonic() - began) / 2

    run(scenario)
