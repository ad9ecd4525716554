"""What the demonstration reads out of a policy's status."""

from __future__ import annotations

from typing import Any

import pytest

from demo.play import acknowledged_revision

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
