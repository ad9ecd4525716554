"""CL-4: a change takes effect slowly, and looks like a failure at first. Field case 38.

Knobs are turned live: nothing restarts, and the cache is kept. What a change does still builds up,
so nothing is judged, done or taken back before `settle` and one window have passed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from evictune.api.knobs import KnobValues
from evictune.api.reasons import Reason

from tests.support.fake_engines import FAST, SLOW, Load
from tests.support.loop_case import EPOCH, LoopCase, play

# p99 of each minute after the change, in seconds.
KEPT = (3.0, 2.3, 1.6, 1.3, 0.9, 0.7)
LEFT = (3.0, 2.3, 1.6, 1.4, 1.4, 1.4)


def warming_up(case: LoopCase, minutes: tuple[float, ...]) -> Callable[[KnobValues], Load]:
    """0.95 s until T-LRU is in force, then minute by minute."""
    since: list[float] = []

    def load(values: KnobValues) -> Load:
        if values.stock:
            since.clear()
            return replace(SLOW, ttft=((0.08, 36.0), (0.95, 4.0)))
        since.append(case.now)
        minute = min(int((case.now - since[0]) // 60), len(minutes) - 1)
        return replace(FAST, ttft=((0.08, 36.0), (minutes[minute], 4.0)))

    return load


async def _until_acknowledged(case: LoopCase) -> None:
    while "Acknowledged" not in case.told:
        assert case.now < EPOCH + 600
        await case.run(30)


def test_no_verdict_before_the_effect_has_built_up_and_then_it_is_kept() -> None:
    case = LoopCase()
    case.behave = warming_up(case, KEPT)

    async def scenario(case: LoopCase) -> None:
        await _until_acknowledged(case)
        begun, xi = case.now, case.xi
        while case.now < begun + 590:
            await case.run(30)
            assert case.changes() == 1
            assert case.xi == xi
            assert case.regime == Reason.SETTLING
        await case.run(90)
        assert case.told[-1] in ("Kept", "RegimeChanged")
        assert "Kept" in case.told
        assert "Reverted" not in case.told
        assert case.status["applied"]["values"]["xiTokens"] == xi

    play(scenario, case)


def test_what_settles_worse_is_taken_back_once_and_noted() -> None:
    case = LoopCase()
    case.behave = warming_up(case, LEFT)

    async def scenario(case: LoopCase) -> None:
        await _until_acknowledged(case)
        xi = case.xi
        await case.run(690)
        assert case.told.count("Reverted") == 1
        assert case.xi is None
        (left,) = [e for e in case.status["quarantine"] if e["values"].get("xiTokens") == xi]
        assert left["reason"] == "Reverted"
        assert 1.3 < float(left["ttft"].removesuffix("s")) < 1.5
        begun = case.changes()
        await case.run(450)
        assert case.changes() == begun, "within the cooldown"
        assert case.xi is None

    play(scenario, case)


@pytest.mark.parametrize("missing", ["availableReplicas", "updatedReplicas"])
def test_engines_restarted_by_others_are_cold_and_judge_nothing(missing: str) -> None:
    """A pod that fails or is rolled out while a change settles: the wait starts anew."""
    case = LoopCase(pods=2)
    case.behave = warming_up(case, KEPT)

    async def scenario(case: LoopCase) -> None:
        await _until_acknowledged(case)
        await case.run(300)
        case.replace_pod("owl-8b-1-1")
        case.put_deployment(2, **{missing: 1})
        await case.run(90)
        case.put_deployment(2)
        restarted = case.now
        while case.now < restarted + 510:
            await case.run(30)
            assert "Kept" not in case.told
            assert "Reverted" not in case.told
        await case.run(240)
        assert "Kept" in case.told

    play(scenario, case)


@pytest.mark.parametrize("fields", [{"settle": "15m"}, {"settle": "1m"}])
def test_the_wait_is_the_policys(fields: dict[str, Any]) -> None:
    behavior = {"interval": "30s", "cooldown": "1m", "knobTTL": "1h", **fields}
    case = LoopCase(behavior=behavior)

    async def scenario(case: LoopCase) -> None:
        await _until_acknowledged(case)
        wait = {"15m": 1200.0, "1m": 360.0}[fields["settle"]]
        await case.run(wait - 60)
        assert "Kept" not in case.told
        await case.run(120)
        assert "Kept" in case.told

    play(scenario, case)
