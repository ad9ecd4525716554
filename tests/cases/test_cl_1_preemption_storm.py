"""CL-1: more concurrent sequences than the cache can hold. Field case 35.

Running requests hold the blocks, so another eviction order frees nothing: no change, and a
diagnosis that says what would help.
"""

from __future__ import annotations

from dataclasses import replace

from evictune.api.knobs import KnobValues
from evictune.api.reasons import Reason

from tests.support.fake_engines import FAST, SLOW, Load, better_with_tlru
from tests.support.loop_case import EPOCH, LoopCase, play

# kv usage, running, waiting, preemptions a second: a tick each.
STORM = (
    (0.97, 80, 3, 0.0),
    (0.99, 78, 40, 0.27),
    (1.0, 74, 120, 1.8),
    (1.0, 72, 184, 4.3),
    (1.0, 72, 190, 6.1),
)
TENS_OF_SECONDS = ((0.4, 20.0), (30.0, 20.0))


def storm(tick: int) -> Load:
    """The load of a tick; the last one lasts."""
    usage, running, waiting, preemptions = STORM[min(max(tick, 0), len(STORM) - 1)]
    return replace(
        SLOW,
        ttft=TENS_OF_SECONDS,
        kv_usage=usage,
        running=running,
        waiting=waiting,
        preemptions=preemptions,
    )


def test_five_ticks_of_storm_are_no_action_and_a_diagnosis() -> None:
    case = LoopCase()
    case.behave = lambda values: storm(int((case.now - EPOCH) // 30) - 10)

    async def scenario(case: LoopCase) -> None:
        await case.run(300)
        for _ in STORM:
            await case.run(30)
            assert case.regime == Reason.CAPACITY_BOUND
        message = case.status["regime"]["message"]
        assert "100% of the KV blocks" in message
        assert "190 wait" in message
        assert "preemptions a second" in message
        assert "concurrency" in Reason.CAPACITY_BOUND.remedy
        assert "replicas" in Reason.CAPACITY_BOUND.remedy
        assert case.condition("SLOMet")[:2] == ("False", "ObjectiveViolated")
        assert case.changes() == 0
        assert case.written() == {"evictionpolicies/status", "events"}
        assert "recommendation" not in case.status

    play(scenario, case)


def test_half_an_hour_of_storm_after_a_change_changes_nothing_more() -> None:
    """The values in force stay and are renewed: a storm is no evidence against them."""
    case = LoopCase()

    async def scenario(case: LoopCase) -> None:
        await case.run(1500)
        assert "Kept" in case.told
        xi, begun = case.xi, case.changes()
        case.behave = lambda values: storm(9)
        await case.run(1800)
        assert case.regime == Reason.CAPACITY_BOUND
        assert (case.xi, case.changes()) == (xi, begun)
        assert case.document is not None
        case.behave = lambda values: FAST
        await case.run(900)
        assert case.regime == Reason.HEALTHY

    play(scenario, case)


def test_a_storm_that_begins_while_a_change_settles_ends_in_one_revert_at_most() -> None:
    case = LoopCase()

    def until_the_storm(values: KnobValues) -> Load:
        return better_with_tlru(values) if case.now < EPOCH + 420 else storm(9)

    case.behave = until_the_storm

    async def scenario(case: LoopCase) -> None:
        await case.run(2700)
        assert case.changes() <= 2
        assert case.regime == Reason.CAPACITY_BOUND

    play(scenario, case)
