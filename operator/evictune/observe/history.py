"""The scrapes of one page that are kept: as long as the longest window asked for needs."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from typing import Generic, TypeVar

from evictune.observe.rates import Scrape, within

# However often a page is read, a window is not kept in finer steps than this share of it.
_FINEST = 1 / 500

K = TypeVar("K", bound=Hashable)


class History(Generic[K]):
    """Scrapes of one page, oldest first."""

    def __init__(self) -> None:
        self._scrapes: deque[Scrape[K]] = deque()

    @property
    def last_time(self) -> float:
        """When the page was last read, seconds since the epoch; 0 if never."""
        return self._scrapes[-1].time if self._scrapes else 0.0

    def add(self, scrape: Scrape[K], window: float) -> None:
        """Keep a scrape, and what a look back of `window` seconds needs."""
        kept = self._scrapes
        if len(kept) >= 2 and kept[-1].time - kept[-2].time < window * _FINEST:
            kept.pop()
        kept.append(scrape)
        while len(kept) > 2 and kept[0].time < scrape.time - 2 * window:
            kept.popleft()

    def within(self, now: float, window: float) -> Sequence[Scrape[K]]:
        """The scrapes that span the window (see rates.within)."""
        return within(tuple(self._scrapes), now, window)

    def __len__(self) -> int:
        return len(self._scrapes)
