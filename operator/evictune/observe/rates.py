"""Increases of counters over a window, from scrapes of one page.

A counter that fell started anew: its process restarted. One counter that fell means that all of
its process started from zero, even those that have already outgrown their old value (per-series
accounting, as in PromQL's increase(), misses these). A sum may fall by a hair without a restart,
where an engine's clock gave a duration below zero: that is no growth, and no restart of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

# A counter at less than this share of what it was started anew.
_FELL = 0.999


@dataclass(frozen=True, slots=True)
class Scrape(Generic[K]):
    """The counters of one page at one time, in seconds."""

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


def increases(
    scrapes: Sequence[Scrape[K]], process: Callable[[K], Hashable] = lambda key: None
) -> dict[K, float]:
    """How much every counter of the newest scrape grew; never negative.

    process: which process keeps a counter; by default one keeps all of the page.
    A counter that comes into sight counts from then on: what it was before is not known.
    """
    last: dict[K, float] = {}
    grown: dict[K, float] = {}
    for scrape in scrapes:
        counters = scrape.counters
        fell = [k for k, value in counters.items() if value < _FELL * last.get(k, value)]
        restarted = {process(key) for key in fell}
        for key, value in counters.items():
            # Hardly ever one fell: then nobody asks whose it is.
            before = 0.0 if fell and process(key) in restarted else last.get(key, value)
            # NaN must stay NaN: it is told, not hidden.
            more = value - before
            grown[key] = grown.get(key, 0.0) + (0.0 if more < 0 else more)
            last[key] = value
    return {key: grown[key] for key in scrapes[-1].counters} if scrapes else {}
