"""Windows of time by cron expressions: is one open, until when, and when does the next one open?

Times are seconds since the epoch. A time zone is looked up once in the IANA database.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Protocol
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError


class Window(Protocol):
    """What is needed of a window; length in seconds."""

    @property
    def cron(self) -> str:
        """When it opens."""
        ...

    @property
    def length(self) -> float:
        """For how long."""
        ...

    @property
    def time_zone(self) -> str:
        """Of the cron expression."""
        ...


def is_cron(text: str) -> bool:
    """Whether it is a cron expression of five fields that comes due at all."""
    try:
        next(CronSim(text, datetime(2000, 1, 1, tzinfo=_zone("UTC"))))
    except (CronSimError, StopIteration):
        return False
    return len(text.split()) == 5


def is_time_zone(name: str) -> bool:
    """Whether the IANA database has it."""
    try:
        _zone(name)
    except (KeyError, OSError, ValueError):  # not there; a folder; not a name
        return False
    return True


def open_until(windows: Iterable[Window], now: float) -> float | None:
    """When the open window that lasts longest closes; None while none is open."""
    ends = [end for end in (_end(window, now) for window in windows) if end is not None]
    return max(ends, default=None)


def next_opening(windows: Iterable[Window], now: float) -> float | None:
    """When the next window opens; None: none ever does."""
    moments = [moment for moment in (_next(window, now) for window in windows) if moment]
    return min(moments, default=None)


def _end(window: Window, now: float) -> float | None:
    """The end of the latest opening up to now, if it lies ahead."""
    # The second now belongs to it: what opens now is open.
    local = datetime.fromtimestamp(now, _zone(window.time_zone)) + timedelta(seconds=1)
    try:
        opened = next(CronSim(window.cron, local, reverse=True))
    except StopIteration:
        return None
    end = opened.timestamp() + window.length
    return end if opened.timestamp() <= now < end else None


def _next(window: Window, now: float) -> float | None:
    try:
        local = datetime.fromtimestamp(now, _zone(window.time_zone))
        return next(CronSim(window.cron, local)).timestamp()
    except StopIteration:
        return None


@lru_cache(maxsize=64)
def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)
