"""CL-1, with the memory fraction to turn: five ticks of storm. Field case 35.

More blocks would help; taking an engine away in the middle would lose what it serves. So nothing
restarts until the storm is over, unless the policy allows it; then five ticks are one action at
most. What would help is said.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from evictune.api.reasons import Reason

from tests.support.engine_load import FAST, SLOW, Load
from tests.support.loop_case import EPOCH, play
from tests.support.memory_case import MemoryCase

# kv usage, running, waiting, preemptions a second of the target: a tick of 15 s each.
STORM = (
    (0.97, 80, 3, 0.0),
    (0.99, 78, 40, 0.27),
    (1.0, 74, 120, 1.8),
    (1.0, 72, 184, 4.3),
    (1.0, 72, 190, 6.1),
)


def _case(policy: str, starts: float = 300.0, **behavior: str) -> MemoryCase:
    """Calm, then the storm from `starts` on; its last tick lasts."""

    def load(pod: object) -> Load:
        del pod
        tick = int((case.now - EPOCH - starts) // 15)
        if tick < 0:
            return FAST
        usage, running, waiting, preemptions = STORM[min(tick, len(STORM) - 1)]
        # Two engines share what runs and waits.
        return replace(
            SLOW, ttft=((0.4, 10.0), (30.0, 10.0)), kv_usage=usage, running=running / 2,
            waiting=waiting / 2, preemptions=preemptions,
        )  # fmt: skip

    fast = {"interval": "15s", **behavior}
    case = MemoryCase(load, disruption={"policy": policy, "maxPerDay": 24}, behavior=fast)
    return case


def _restarts(case: MemoryCase) -> int:
    return sum(pod.restarts for pod in case.life.pods)


@pytest.mark.parametrize("policy", ["WhenRedundant", "Allow", "Never"])
def test_five_ticks_are_no_restart_and_a_diagnosis(policy: str) -> None:
    """Even where restarts are allowed, a shortage must last for as long as a change takes."""
    case = _case(policy)

    async def scenario(case: MemoryCase) -> None:
        await case.run(300 + 15 * len(STORM))
        assert case.regime == Reason.CAPACITY_BOUND
        message = case.status["regime"]["message"]
        assert "100% of the KV blocks" in message
        assert "190 wait" in message
        assert "memory" in Reason.CAPACITY_BOUND.remedy
        assert case.changes() == 0
        assert _restarts(case) == 0
        assert case.written() == {"evictionpolicies/status", "events"}
        # What a step would buy is shown all the same, and why it is not made.
        assert case.status["recommendation"]["target"]["gpuMemoryUtilization"] == "0.87"
        assert "KV blocks more" in case.status["recommendation"]["basis"]
        assert "WaitingForSamples" in case.held

    play(scenario, case)


def test_a_storm_that_lasts_takes_no_engine_away() -> None:
    case = _case("WhenRedundant")

    async def scenario(case: MemoryCase) -> None:
        await case.run(3 * 3600)
        assert _restarts(case) == 0
        assert {"Storm", "GainTooSmall"} <= set(case.held)
        held = {each["reason"]: each["message"] for each in case.status["holds"]}
        assert "190 requests wait, 72 run" in held["Storm"]
        assert "of what waiting requests need" in held["GainTooSmall"]

    play(scenario, case)


def test_where_it_is_allowed_a_storm_is_one_step_at_a_time() -> None:
    """Tolerance 0: the least gain is worth a restart. Still one pod, judged, is all there is."""
    case = _case("Allow", tolerance="0")

    async def scenario(case: MemoryCase) -> None:
        while not _restarts(case):
            assert case.now < EPOCH + 2 * 3600
            await case.run(15)
        began = case.now
        await case.run(15 * 5)
        assert case.changes() == 1
        assert _restarts(case) == 1
        # It makes no difference to a storm: the one engine goes back, and that is all.
        await case.run(2 * 3600)
        assert case.told.count("NoDifference") == 1
        assert case.life.pods[0].restarts == 0
        assert case.fractions == ["0.85", "0.85"]
        assert case.now > began

    play(scenario, case)
