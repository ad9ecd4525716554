"""What the demonstration reads out of a policy's status."""

from __future__ import annotations

from typing import Any

import pytest

from demo.play import acknowledged_revision, is_last_word

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
