"""MR-1: out of memory minutes after the fraction was raised. Field case 31.

An engine that takes too much starts, serves, and dies under load: exit code 1, not OOMKilled. What
it died of goes back, is remembered in status across restarts of the operator, and is not tried
again; nor is anything larger.
"""

from __future__ import annotations

from decimal import Decimal

import pytest
from evictune.api.parse import parse_policy
from evictune.api.quantity import FieldError

from tests.support.loop_case import EPOCH, play, policy_body
from tests.support.memory_case import MemoryCase
from tests.support.shortage import short_of_blocks


@pytest.mark.parametrize("most", ["1.0", "0.98", "0.96"])
def test_a_bound_that_leaves_no_memory_is_rejected(most: str) -> None:
    bounds = {"min": "0.80", "max": most, "step": "0.02"}
    with pytest.raises(FieldError) as refused:
        parse_policy(policy_body(knobs={"gpuMemoryUtilization": bounds}))
    assert refused.value.field == "spec.knobs.gpuMemoryUtilization.max"
    assert refused.value.value == most
    assert refused.value.remedy == "use 0.05 to 0.95"


def _good_then_fatal(seconds: float) -> MemoryCase:
    """0.87 is good; 0.89 starts, and dies so much later."""
    case = MemoryCase(short_of_blocks, disruption={"policy": "WhenRedundant", "maxPerDay": 24})
    case.life.dies_after = {Decimal("0.89"): seconds}
    return case


@pytest.mark.parametrize("minutes", [3, 8, 30])
def test_back_to_the_last_good_one_and_no_second_try(minutes: int) -> None:
    """Before the verdict, before the change was kept, and long after."""
    case = _good_then_fatal(60.0 * minutes)

    async def scenario(case: MemoryCase) -> None:
        while "EngineFailed" not in case.told:
            assert case.now < EPOCH + 6 * 3600
            await case.run(300)
        await case.run(1800)
        assert case.fractions == ["0.87", "0.87"]
        (left,) = case.status["quarantine"]
        assert left["values"] == {"gpuMemoryUtilization": "0.89"}
        assert left["reason"] == "EngineFailed"
        assert case.status["applied"]["values"]["gpuMemoryUtilization"] == "0.87"
        failed = next(
            body["message"]
            for _, path, body in case.api.requests
            if path.endswith("/events") and body["reason"] == "EngineFailed"
        )
        assert "ended" in failed or "dropped" in failed
        asked = sum(pod.restarts for pod in case.life.pods)
        # Other processes of the operator know what status knows.
        for _ in range(4):
            case.start()
            await case.run(3600)
        assert sum(pod.restarts for pod in case.life.pods) == asked
        assert "Quarantined" in case.held

    play(scenario, case)


def test_the_peer_of_the_engine_that_died_was_never_touched_by_it() -> None:
    case = _good_then_fatal(180.0)

    async def scenario(case: MemoryCase) -> None:
        await case.run(3 * 3600)
        # Once for 0.87; the other one also for 0.89, its end, and the way back.
        assert case.life.pods[0].restarts == 1
        assert case.life.pods[1].restarts >= 3

    play(scenario, case)


def test_a_fraction_that_starts_no_engine_is_dropped_by_the_pod_itself() -> None:
    case = MemoryCase(short_of_blocks)
    case.life.starts_fail = {Decimal("0.87")}

    async def scenario(case: MemoryCase) -> None:
        await case.run(3600)
        assert case.told.count("EngineFailed") == 1
        assert case.fractions == ["0.85", "0.85"]
        assert case.life.pods[0].restarts == 0
        assert "gpuMemoryUtilization" not in case.status["applied"]["values"]

    play(scenario, case)
