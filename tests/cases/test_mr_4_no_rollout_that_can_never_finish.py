"""MR-4: a rolling update whose new pod waits for the GPU that the old one holds. Field case 34.

A change needs no new pod: the engine restarts in place, on its own GPU. With one replica that is
downtime, refused unless the policy allows it. Somebody else's rollout, stalled or not, pauses it.
"""

from __future__ import annotations

import copy

from tests.support.loop_case import DEPLOYMENT, play
from tests.support.memory_case import MemoryCase
from tests.support.shortage import SHORT, short_of_blocks


def test_one_replica_is_refused_with_the_reason() -> None:
    case = MemoryCase(short_of_blocks, pods=1)

    async def scenario(case: MemoryCase) -> None:
        await case.run(3600)
        assert case.life.pods[0].restarts == 0
        assert "NotRedundant" in case.held
        assert case.document is None
        # What it would gain is shown all the same.
        assert case.status["recommendation"]["target"]["gpuMemoryUtilization"] == "0.87"
        assert "KV blocks more" in case.status["recommendation"]["basis"]

    play(scenario, case)


def test_one_replica_that_may_be_down_restarts_in_place() -> None:
    case = MemoryCase(short_of_blocks, pods=1, disruption={"policy": "Allow"})

    async def scenario(case: MemoryCase) -> None:
        await case.tick()
        before = copy.deepcopy(case.api.objects[DEPLOYMENT]["spec"])
        while "Kept" not in case.told:
            assert case.now < 1_796_000_000 + 3 * 3600
            await case.run(30)
        assert case.fractions == ["0.87"]
        assert case.life.pods[0].restarts == 1
        assert case.api.objects[DEPLOYMENT]["spec"] == before
        assert case.written() == {"evictionpolicies/status", "configmaps", "events"}

    play(scenario, case)


def test_somebodys_stalled_rollout_pauses_everything() -> None:
    """Progressing=False for hours: nothing is begun, and the old pods' readings credit nobody."""
    case = MemoryCase(lambda pod: SHORT, pods=2)
    stalled = {"updatedReplicas": 1}

    async def scenario(case: MemoryCase) -> None:
        put = case.put_deployment
        case.put_deployment = lambda pods, **status: put(pods, **{**status, **stalled})  # type: ignore[method-assign]
        await case.run(2 * 3600)
        assert case.changes() == 0
        assert "RolloutInProgress" in case.held
        assert [pod.restarts for pod in case.life.pods] == [0, 0]

    play(scenario, case)
