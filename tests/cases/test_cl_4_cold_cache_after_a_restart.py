"""CL-4, as it was met: a restart takes minutes and empties the cache. Field case 38.

The first engine is judged when its cache has been warm for a window, not when it comes back: 3 s at
first are no failure. What settles worse goes back once, and is noted.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

from tests.support.engine_load import Load
from tests.support.loop_case import EPOCH, play
from tests.support.memory_case import MemoryCase
from tests.support.memory_world import MANIFEST, MemoryPod
from tests.support.shortage import SHORT

# Of each minute from Ready on: hit ratio, and the tail in seconds.
KEPT = ((0.0, 3.0), (0.05, 2.6), (0.18, 1.9), (0.35, 1.3), (0.52, 0.9), (0.60, 0.5))
LEFT = ((0.0, 3.0), (0.05, 2.6), (0.18, 1.9), (0.35, 1.6), (0.41, 1.4), (0.41, 1.4))
QUERIED = 6000.0


def _warming(minutes: tuple[tuple[float, float], ...], pods: int = 2) -> MemoryCase:
    """Before: hit ratio 0.61, tail 0.95 s. An engine is away for four minutes, then cold."""

    def load(pod: MemoryPod) -> Load:
        hits, tail, preemptions = 0.61, 0.95, 0.4
        if pod.fraction != MANIFEST:
            minute = int((case.life.now - pod.started) // 60)
            hits, tail = minutes[min(max(minute, 0), len(minutes) - 1)]
            preemptions = 0.0 if minutes is KEPT else 0.6
        return replace(
            SHORT, ttft=((0.08, 36.0), (tail, 4.0)), computed=QUERIED * (1 - hits),
            queried=QUERIED, preemptions=preemptions,
        )  # fmt: skip

    case = MemoryCase(load, pods)
    case.life.load_seconds = 240.0
    return case


async def _until(case: MemoryCase, reason: str) -> float:
    while reason not in case.told:
        assert case.now < EPOCH + 3 * 3600, case.told
        await case.run(30)
    return case.now


def test_cold_is_no_failure_and_then_it_is_kept() -> None:
    case = _warming(KEPT)

    async def scenario(case: MemoryCase) -> None:
        back = await _until(case, "EngineRestarted")
        # Warm after five minutes at the latest, judged by the window after that.
        while case.now < back + 300:
            await case.run(30)
            assert case.told.count("Intended") == 1
            assert "CanaryPassed" not in case.told
            assert case.life.pods[0].restarts == 0
            assert case.regime == "Settling"
        await _until(case, "Kept")
        assert case.fractions == ["0.87", "0.87"]
        assert "Reverted" not in case.told

    play(scenario, case)


def test_what_settles_worse_goes_back_once_and_is_noted() -> None:
    case = _warming(LEFT)

    async def scenario(case: MemoryCase) -> None:
        back = await _until(case, "EngineRestarted")
        while case.now < back + 540:
            await case.run(30)
            assert case.told.count("Intended") == 1, "no verdict before it is warm"
        await _until(case, "Reverted")
        await case.run(1200)
        assert case.told.count("Intended") == 2
        assert case.fractions == ["0.85", "0.85"]
        assert [pod.restarts for pod in case.life.pods] == [0, 2]
        (left,) = case.status["quarantine"]
        assert left["values"] == {"gpuMemoryUtilization": "0.87"}
        await case.run(2 * 3600)
        assert [pod.restarts for pod in case.life.pods] == [0, 2]

    play(scenario, case)


def test_the_next_engine_waits_until_the_last_one_is_warm() -> None:
    """Never two cold caches at once: each restart is a whole warm-up after the one before."""
    case = _warming(KEPT, pods=3)

    async def scenario(case: MemoryCase) -> None:
        back: dict[str, float] = {}
        while "Kept" not in case.told:
            assert case.now < EPOCH + 3 * 3600
            await case.run(30)
            for pod in case.life.pods:
                if pod.restarts and pod.ready:
                    back.setdefault(pod.name, case.now)
        moments = sorted(back.values())
        assert len(moments) == 3
        assert all(b - a >= 240 + 240 for a, b in itertools.pairwise(moments))

    play(scenario, case)
