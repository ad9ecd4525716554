"""Windows by cron expressions: open, until when, and when next; time zones and their changes."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from evictune.api.disruption import DisruptionWindow
from evictune.api.schedule import is_cron, is_time_zone, next_opening, open_until

NIGHTS = DisruptionWindow("0 22 * * 1-5", 4 * 3600.0, "Europe/Berlin")


def at(text: str) -> float:
    """Seconds since the epoch of a moment in UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


# 2026-11-30 is a Monday; Berlin is an hour ahead of UTC in winter.
@pytest.mark.parametrize(
    ("moment", "until"),
    [
        ("2026-11-30T20:59:59", None),
        ("2026-11-30T21:00:00", "2026-12-01T01:00:00"),
        ("2026-12-01T00:59:59", "2026-12-01T01:00:00"),
        ("2026-12-01T01:00:00", None),
        ("2026-12-05T00:30:00", "2026-12-05T01:00:00"),
        ("2026-12-05T21:30:00", None),
    ],
)
def test_a_window_is_open_from_its_minute_on_for_its_length(moment: str, until: str | None) -> None:
    assert open_until([NIGHTS], at(moment)) == (None if until is None else at(until))


def test_the_next_opening_is_the_soonest_of_all() -> None:
    noon = DisruptionWindow("0 12 * * *", 60.0)
    now = at("2026-12-04T22:00:00")
    assert next_opening([NIGHTS], now) == at("2026-12-07T21:00:00")
    assert next_opening([NIGHTS, noon], now) == at("2026-12-05T12:00:00")


def test_of_open_windows_the_last_to_close_counts() -> None:
    always = DisruptionWindow("* * * * *", 86400.0)
    assert open_until([NIGHTS, always], at("2026-11-30T21:30:00")) == at("2026-12-01T21:30:00")


def test_the_clocks_change_and_the_wall_s_time_counts() -> None:
    early = DisruptionWindow("30 3 * * *", 1800.0, "Europe/Berlin")
    assert next_opening([early], at("2026-10-24T12:00:00")) == at("2026-10-25T02:30:00")
    assert next_opening([early], at("2026-10-23T12:00:00")) == at("2026-10-24T01:30:00")


def test_what_is_a_cron_expression_and_a_time_zone() -> None:
    assert is_cron("*/15 2-4 * * MON")
    assert not any(is_cron(text) for text in ("", "0 2 * *", "* * * * * *", "61 * * * *", "x"))
    assert is_time_zone("UTC")
    assert is_time_zone("America/Argentina/Ushuaia")
    assert not any(is_time_zone(name) for name in ("", "Europe", "../etc/passwd", "Mars/Base"))
