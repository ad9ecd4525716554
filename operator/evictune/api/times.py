"""Points in time as the API writes them: RFC 3339, UTC; inside, seconds since the epoch."""

from __future__ import annotations

from datetime import UTC, datetime


def format_time(seconds: float) -> str:
    """RFC 3339 in UTC with whole seconds, such as "2026-11-29T12:00:00Z"."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: str) -> float:
    """Seconds since the epoch. Raises ValueError for a text without a time zone."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone: end it with Z")
    return moment.timestamp()
