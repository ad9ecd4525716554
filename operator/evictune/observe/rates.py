"""Increases of counters over a window, from scrapes of one page.

A counter that fell started anew: its process restarted. As all counters of a page live in one
process, one that fell means that all of them started from zero, even those that have already
outgrown their old value (per-series accounting, as in PromQL's increase(), misses these).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class Scrape(Generic[K]):
    """The counters of one page at one time (seconds since the epoch)."""

    time: float
    counters: Mapping[K, float]


def within(scrapes: Sequence[Scrape[K]], now: float, window: float) -> Sequence[Scrape[K]]:
    """The scrapes that span the window, oldest first.

    The newest scrape at or before the window's start is included, so that a window as short as
    the time between scrapes still holds two; but none from before twice the window.
    """
    recent = [scrape for scrape in scrapes if scrape.time >= now - 2 * window]
    older = sum(scrape.time <= now - window for scrape in recent)
    return recent[max(0, older - 1) :]


def increases(scrapes: Sequence[Scrape[K]]) -> dict[K, float]:
    """How much every counter of the newest scrape grew; never negative.

    A counter that is absent from an earlier scrape of the page was born after it, at zero.
    """
    if not scrapes:
        return {}
    grown: dict[K, float] = dict.fromkeys(scrapes[-1].counters, 0.0)
    for before, after in pairwise(scrapes):
        restarted = _restarted(before.counters, after.counters)
        for key, value in after.counters.items():
            if key in grown:
                grown[key] += value - (0.0 if restarted else before.counters.get(key, 0.0))
    return grown


def _restarted(before: Mapping[K, float], after: Mapping[K, float]) -> bool:
    return any(after.get(key, value) < value for key, value in before.items())
