"""PS-1: the plugin is not loaded where it matters. Field case 51.

It shows itself from the process that holds the scheduler, one series for each engine rank; what
does not show there is not in force, whatever another process logs. With a real vLLM and two ranks:
tests/long/test_plugin_ranks.py; unknown versions: test_plugin_mutations.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from evictune.api.reasons import Reason

from tests.support.loop_case import CONFIG_MAP, LoopCase, play

PLUGIN = 9410


def shown_as(case: LoopCase, change: Callable[[str], str], pod: str = "") -> None:
    """Let the plugin's page of a pod (default: every pod) be changed on its way."""
    pages = case.pages

    def page(name: str, port: int) -> str:
        text = pages(name, port)
        return change(text) if port == PLUGIN and pod in ("", name) else text

    case.pages = page  # type: ignore[method-assign]


def ranks_of_two(text: str, shown: tuple[str, ...] = ("0", "1")) -> str:
    """A page of two ranks, of which only some are shown."""
    lines = [
        line.replace('engine="0"', f'engine="{rank}"')
        for rank in shown
        for line in text.splitlines()
    ]
    return "\n".join(lines) + "\n"


def without(*names: str) -> Callable[[str], str]:
    """A page that lacks some series."""

    def change(text: str) -> str:
        return "".join(
            line + "\n" for line in text.splitlines() if not line.startswith(tuple(names))
        )

    return change


def test_no_plugin_at_all_is_held_and_said() -> None:
    case = LoopCase()
    case.deaf = set(case.engines)

    async def scenario(case: LoopCase) -> None:
        await case.run(1200)
        status, reason, message = case.condition("PolicyActive")
        assert (status, reason) == ("False", "PolicyNotActive")
        assert "does not show the plugin" in message
        assert "wire" in Reason.POLICY_NOT_ACTIVE.remedy
        assert "applied" not in case.status
        assert case.changes() == 0
        assert CONFIG_MAP not in case.api.objects

    play(scenario, case)


def test_a_page_of_a_process_without_the_scheduler_is_no_plugin() -> None:
    """The port answers, another process's own series and all; the info series is not there."""
    case = LoopCase()
    shown_as(case, lambda text: "process_start_time_seconds 1.7e9\n")

    async def scenario(case: LoopCase) -> None:
        await case.run(1200)
        assert case.condition("PolicyActive")[:2] == ("False", "PolicyNotActive")
        assert case.changes() == 0

    play(scenario, case)


@pytest.mark.parametrize("missing", ["rank", "pod"])
def test_in_force_on_one_and_not_on_the_other_is_not_applied(missing: str) -> None:
    """Two data-parallel ranks, or two pods: all must show what is wanted."""
    case = LoopCase(pods=2 if missing == "pod" else 1)
    if missing == "rank":
        pages = case.pages

        def of_two(name: str, port: int) -> str:
            shown = ("0",) if port == PLUGIN else ("0", "1")
            return ranks_of_two(pages(name, port), shown)

        case.pages = of_two  # type: ignore[method-assign]
    else:
        case.deaf = {"owl-8b-1-1"}

    async def scenario(case: LoopCase) -> None:
        await case.run(1200)
        status, reason, message = case.condition("PolicyActive")
        assert (status, reason) == ("False", "PolicyNotActive")
        assert ("ngine 1 of pod" if missing == "rank" else "pod owl-8b-1-1") in message
        assert case.changes() == 0

    play(scenario, case)


def test_a_rank_that_never_takes_the_value_ends_the_change_and_it_is_taken_back() -> None:
    """Shown and eligible, but deaf to the document: after five minutes back to what was."""
    case = LoopCase(pods=2)
    stock = 'policy="lru",xi_tokens="",q_hat_tokens="",revision="0"'

    def deaf(text: str) -> str:
        return re.sub(
            r'policy="[^"]*",xi_tokens="[^"]*",q_hat_tokens="[^"]*",revision="\d+"', stock, text
        )

    shown_as(case, deaf, "owl-8b-1-1")

    async def scenario(case: LoopCase) -> None:
        await case.run(1500)
        assert "Acknowledged" not in case.told
        assert case.told.count("Abandoned") >= 1
        assert case.xi is None
        assert case.changes() <= 2 + 2, "one try, one revert, and no more within a cooldown"
        assert not any(reason == "Kept" for reason in case.told)

    play(scenario, case)


@pytest.mark.parametrize(
    "why", ["PrefixCachingDisabled", "NotSingleFullAttentionGroup", "UnknownEngineInternals"]
)
def test_an_engine_that_cannot_use_t_lru_says_why_and_is_left_as_it_is(why: str) -> None:
    case = LoopCase()
    eligible = 'evictune_engine_eligible{engine="0",reason=""} 1'
    shown_as(
        case,
        lambda t: t.replace(eligible, f'evictune_engine_eligible{{engine="0",reason="{why}"}} 0'),
    )

    async def scenario(case: LoopCase) -> None:
        await case.run(900)
        assert case.regime == Reason.NOT_ELIGIBLE
        assert why in case.status["regime"]["message"]
        assert case.status["engines"]["ineligible"] == 1
        assert case.changes() == 0

    play(scenario, case)


def test_an_older_plugin_counts_less_and_the_rest_goes_on() -> None:
    """A fleet in mid-upgrade: one pod does not yet count what was computed again."""
    case = LoopCase(pods=2)
    shown_as(case, without("evictune_recomputed_tokens_total"), "owl-8b-1-0")

    async def scenario(case: LoopCase) -> None:
        await case.run(1200)
        assert case.status["observed"]["recomputedTokens"] == "Unknown"
        assert "Kept" in case.told
        assert case.status["engines"]["acknowledged"] == 2

    play(scenario, case)


def test_a_plugin_that_does_not_count_evictions_is_no_ground_to_act_on() -> None:
    case = LoopCase()
    shown_as(case, without("evictune_evicted_blocks_total", "evictune_engine_eligible"))

    async def scenario(case: LoopCase) -> None:
        await case.run(1200)
        assert case.status["observed"]["evictedLru"] == "Unknown"
        assert case.regime == Reason.UNKNOWN
        assert "whether cached blocks are evicted is unknown" in case.status["regime"]["message"]
        assert case.changes() == 0

    play(scenario, case)


def test_a_pod_scaled_in_without_the_plugin_holds_further_changes_and_keeps_the_value() -> None:
    """An old image in a new pod: what is in force elsewhere is renewed, and not called whole."""
    case = LoopCase(pods=2)

    async def scenario(case: LoopCase) -> None:
        await case.run(1200)
        xi = case.xi
        case.scale(3)
        case.deaf = {"owl-8b-1-2"}
        await case.run(1800)
        assert case.xi == xi
        assert case.condition("PolicyActive")[:2] == ("False", "PolicyNotActive")
        assert case.changes() == 1
        assert case.document is not None

    play(scenario, case)
