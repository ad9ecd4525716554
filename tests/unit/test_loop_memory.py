"""The memory fraction through the whole loop: the fleet's budget, and what people are told."""

from __future__ import annotations

from typing import Any, cast

import pytest
from evictune.console.explain import render
from evictune.console.history import render as history
from evictune.console.paper import Paper
from evictune.console.subjects import subject_of
from evictune.kube import KubeApi

from tests.support.loop_case import EPOCH, play, policy_body
from tests.support.memory_case import MemoryCase
from tests.support.shortage import short_of_blocks

NIGHT = [{"cron": "0 3 * * *", "duration": "1h"}]


def _explained(case: MemoryCase) -> str:
    subject = subject_of(cast("KubeApi", case.api), case.policy)
    return render(subject, Paper(case.now, False, 110))


def test_no_engine_restarts_before_every_other_policy_was_looked_at() -> None:
    case = MemoryCase(short_of_blocks)
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "owl-70b"}
    case.put_policy(policy_body("other", "0a1b2c3d-2", targetRef=target))

    async def scenario(case: MemoryCase) -> None:
        await case.run(3600)
        assert [pod.restarts for pod in case.life.pods] == [0, 0]
        assert "RestartElsewhere" in case.held
        await case.tick("other")
        await case.run(60)
        assert sum(pod.restarts for pod in case.life.pods) == 1

    play(scenario, case)


@pytest.mark.parametrize(
    ("disruption", "words"),
    [
        (
            {"policy": "Never"},
            "Set behavior.disruption.policy to WhenRedundant to have engines restarted in place.",
        ),
        (
            {"policy": "Allow", "windows": NIGHT},
            # 2026-11-30, 01:33 UTC.
            "no window of behavior.disruption.windows is open; the next opens 2026-11-30T03:00:00Z",
        ),
    ],
)
def test_explain_says_what_it_would_gain_and_what_holds_it(
    disruption: dict[str, Any], words: str
) -> None:
    case = MemoryCase(short_of_blocks, disruption=disruption)

    async def scenario(case: MemoryCase) -> None:
        await case.run(1800)
        told = " ".join(_explained(case).split())
        assert "memory fraction 0.87" in told
        assert "KV blocks more in each engine" in told
        assert "of what waiting requests need" in told
        assert words in told
        assert "memory fraction 0.85, 4500 KV blocks each" in told

    play(scenario, case)


def test_history_tells_each_step() -> None:
    case = MemoryCase(short_of_blocks)

    async def scenario(case: MemoryCase) -> None:
        while "Kept" not in case.told:
            assert case.now < EPOCH + 2 * 3600
            await case.run(30)
        subject = subject_of(cast("KubeApi", case.api), case.policy)
        told = history([subject], Paper(case.now, False, 110), steps=False)
        assert told.count("EngineRestarted") == 2
        assert "CanaryPassed" in told
        assert "memory fraction manifest's → 0.87" in told
        assert "Kept" in told

    play(scenario, case)
