"""What the demonstration reads out of a policy's status."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from demo.narrate import Narrator
from demo.play import Play, acknowledged_revision, is_last_word
from demo.record import Arm
from demo.stage import Engine, Stage

APPLIED = {"revision": 1}


@pytest.mark.parametrize(
    ("status", "revision"),
    [
        ({}, 0),
        ({"applied": APPLIED}, 1),
        ({"applied": APPLIED, "pending": {"phase": "Writing", "revision": 2}}, 1),
        ({"applied": APPLIED, "pending": {"phase": "Acknowledging", "revision": 2}}, 1),
        ({"applied": APPLIED, "pending": {"phase": "Settling", "revision": 2}}, 2),
        ({"pending": {"phase": "Settling", "revision": 1}}, 1),
    ],
)
def test_a_change_counts_from_its_acknowledgement(status: dict[str, Any], revision: int) -> None:
    assert acknowledged_revision(status) == revision


MISSED = {"type": "SLOMet", "status": "False", "reason": "ObjectiveViolated"}
OUT_OF_REACH = {"type": "SLOMet", "status": "False", "reason": "TargetOutOfReach"}


@pytest.mark.parametrize(
    ("status", "over"),
    [
        ({}, False),
        ({"conditions": [MISSED]}, False),
        ({"conditions": [OUT_OF_REACH]}, True),
        ({"conditions": [OUT_OF_REACH], "pending": {"phase": "Settling", "revision": 2}}, False),
    ],
)
def test_the_last_word_is_said_once_nothing_is_being_tried(
    status: dict[str, Any], over: bool
) -> None:
    assert is_last_word(status) is over


class Told:
    """A stage whose policy has one status after the other."""

    def __init__(self, *conditions: dict[str, Any]) -> None:
        self._conditions = list(conditions)

    def policy(self) -> dict[str, Any]:
        condition = {"message": "in words", **self._conditions.pop(0)}
        return {"status": {"conditions": [condition]}}


def test_a_target_out_of_reach_is_told_although_it_was_missed_before() -> None:
    told = (MISSED, MISSED, OUT_OF_REACH, OUT_OF_REACH)
    arm = Arm("loop", "the loop")
    play = Play(arm, cast("Stage", Told(*told)), cast("Engine", None), Narrator())
    for _ in told:
        asyncio.run(play._listen(None))  # type: ignore[arg-type]
    assert [step.reason for step in arm.steps] == ["ObjectiveViolated", "TargetOutOfReach"]
