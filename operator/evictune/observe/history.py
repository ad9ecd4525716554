"""The scrapes of one page that are kept: as many as a look back of one window needs."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable, Sequence
from typing import Generic, TypeVar

from evictune.observe.rates import Scrape, within
from evictune.observe.snapshot import PodKey

# However often a page is read, a window is not kept in finer steps than this share of it.
_FINEST = 1 / 500

_FORGET_WINDOWS = 4
# Seconds between two looks for what to forget: each goes through the pods of all policies.
_FORGET_INTERVAL = 60.0

K = TypeVar("K", bound=Hashable)


class History(Generic[K]):
    """Scrapes of one page, oldest first.

    turn: held from asking for the page until its scrape is added. Of two looks at one page at the
    same time the older could else be added last, and look like a restart.
    """

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self._scrapes: deque[Scrape[K]] = deque()
        self._forget_time = 0.0

    def add(self, scrape: Scrape[K], window: float) -> None:
        """Keep a scrape, and what a look back of `window` seconds needs."""
        kept = self._scrapes
        self._forget_time = scrape.time + _FORGET_WINDOWS * window
        if len(kept) >= 2 and kept[-1].time - kept[-2].time < window * _FINEST:
            kept.pop()
        kept.append(scrape)
        while len(kept) > 2 and kept[0].time < scrape.time - 2 * window:
            kept.popleft()

    def within(self, now: float, window: float) -> Sequence[Scrape[K]]:
        """The scrapes that span the window (see rates.within)."""
        return within(tuple(self._scrapes), now, window)

    def forgotten(self, now: float) -> bool:
        """Whether so long has passed since the last scrape that none of them is of use."""
        return now > self._forget_time

    def __len__(self) -> int:
        return len(self._scrapes)


class Histories(Generic[K]):
    """The histories of many pages, by pod and window.

    A pod of the same name but another UID is another. Windows have their own: who asks about a
    short one must not shorten what another policy remembers.
    """

    def __init__(self) -> None:
        self._by_pod: dict[Hashable, History[K]] = {}
        self._next_forget = 0.0

    def of(self, pod: PodKey, uid: str, window: float) -> History[K]:
        """The pod's history for a window in seconds, empty at first."""
        return self._by_pod.setdefault((pod, uid, window), History())

    def forget(self, now: float) -> None:
        """Drop the histories of pods that nobody asks about any more. Called at every look."""
        if now < self._next_forget:
            return
        self._next_forget = now + _FORGET_INTERVAL
        kept = {k: h for k, h in self._by_pod.items() if h.turn.locked() or not h.forgotten(now)}
        self._by_pod = kept
