"""Unseen of kind CL: readings that flap, hover or vanish must not make the loop move."""

from __future__ import annotations

import json
from dataclasses import replace

from evictune.api.knobs import KnobValues
from evictune.api.reasons import Reason

from tests.support.fake_engines import FAST, SLOW, Load
from tests.support.loop_case import EPOCH, LoopCase, play


def test_a_source_that_answers_every_other_time_decides_nothing_on_the_gaps() -> None:
    case = LoopCase()
    pages = case.pages

    def every_other(name: str, port: int) -> str:
        gone = int((case.now - EPOCH) // 30) % 2 == 1
        return "" if port == 8000 and gone else pages(name, port)

    case.pages = every_other  # type: ignore[method-assign]

    async def scenario(case: LoopCase) -> None:
        for _ in range(60):
            before = case.changes()
            await case.run(30)
            ttft = case.status["observed"]["ttft"]["estimate"]
            assert case.changes() == before or ttft != "Unknown"
        assert case.changes() <= 1
        told = [each["reason"] for each in case.status["decisions"]]
        assert told.count("RegimeChanged") <= 3, "what comes and goes pushes nothing else out"

    play(scenario, case)


def test_a_tail_that_hovers_about_the_threshold_moves_nothing() -> None:
    """Each window lies a little above or below: within tolerance it is neither met nor violated."""
    case = LoopCase()

    def hovering(values: KnobValues) -> Load:
        high = int((case.now - EPOCH) // 300) % 2
        return replace(SLOW, ttft=((0.08, 36.0), (0.85 if high else 0.76, 4.0)))

    case.behave = hovering

    async def scenario(case: LoopCase) -> None:
        await case.run(1800)
        assert case.changes() == 0
        assert case.regime in (Reason.BORDERLINE, Reason.UNKNOWN)
        assert case.condition("SLOMet")[0] == "Unknown"

    play(scenario, case)


def test_a_load_that_alternates_does_not_make_the_value_alternate() -> None:
    """Ten minutes of one, ten of the other: the value that was found for the bad one stays."""
    case = LoopCase(behavior={"interval": "1m", "settle": "5m", "cooldown": "10m"})

    def alternating(values: KnobValues) -> Load:
        busy = int((case.now - EPOCH) // 600) % 2 == 0
        return SLOW if busy and values.stock else FAST

    case.behave = alternating

    async def scenario(case: LoopCase) -> None:
        await case.run(2 * 3600)
        assert case.changes() == 1
        assert "Reverted" not in case.told
        assert len({json.dumps(each["default"]) for each in case.documents()}) == 1

    play(scenario, case)


def test_no_value_helps_and_a_day_sees_few_tries() -> None:
    """The same miss whatever is set. How the tries become ever fewer over weeks:
    tests/property/test_decide_simulated_fleet.py.
    """
    behavior = {"interval": "10m", "settle": "10m", "cooldown": "20m", "knobTTL": "2h"}
    case = LoopCase(lambda values: replace(SLOW), behavior=behavior)

    async def scenario(case: LoopCase) -> None:
        await case.run(86400)
        assert 1 <= case.changes() <= 16, "of 72 cooldowns"
        assert case.condition("SLOMet")[:2] == ("False", "TargetOutOfReach")
        assert case.xi is None

    play(scenario, case)
