"""The operator's own schedule: one task a policy, each on a fixed grid of its own.

Ticks fall on start + n x interval, however long a tick takes, so that they do not drift. The grids
of policies are shifted against each other, each by its own share of the interval: however many are
made in one go, their ticks spread over it. Only the first tick comes at once. A tick
that fails is counted and tried again at the next point of the grid. Nothing that one policy waits
for delays another: they share only a bounded pool of threads, whose calls all have time limits.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from evictune.act.status import StatusPrunedError
from evictune.index import Entry, Key
from evictune.kube import ApiError
from evictune.logs import about
from evictune.operator_metrics import OperatorMetrics
from evictune.tick import Outcome

DEFAULT_INTERVAL = 30.0
# A tick's parts have their own limits; this one only catches what they miss.
TICK_LIMIT = 120.0
# So many policies' first ticks a second, where all of them start together.
FIRST_TICKS_A_SECOND = 20.0

_OUTSIDE = (ApiError, StatusPrunedError, TimeoutError)

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Clock:
    """Time, handed in so that tests own it. `monotonic` and `sleep` belong together."""

    wall: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


def next_due(start: float, interval: float, now: float, check_at: float | None = None) -> float:
    """The next point of the grid start + n x interval after `now`, or `check_at` if sooner.

    All in seconds of one clock. A point exactly now has passed.
    """
    due = start + (math.floor((now - start) / interval) + 1) * interval
    if check_at is not None and check_at < due:
        return check_at
    return due


def spread_of(policies: int) -> float:
    """Seconds for the first ticks of so many: few start at once, many at a pace we can keep."""
    return max(0.0, policies / FIRST_TICKS_A_SECOND - 1)


def share_of(uid: str) -> float:
    """A number within [0, 1), always the same for one policy."""
    return int.from_bytes(hashlib.sha256(uid.encode()).digest()[:4]) / 2**32


class PolicyLoop:
    """The task of one policy."""

    def __init__(
        self,
        entry: Entry,
        tick: Callable[[Key], Awaitable[Outcome | None]],
        metrics: OperatorMetrics,
        clock: Clock,
        spread: float,
    ) -> None:
        self.entry = entry
        self._tick = tick
        self._metrics = metrics
        self._clock = clock
        self._share = share_of(entry.uid)
        self._delay = self._share * spread
        self._woken = asyncio.Event()
        # The first tick comes anyway; only a later edit hastens it.
        self._generation = entry.generation
        self._interval = DEFAULT_INTERVAL

    def edited(self, generation: int) -> None:
        """Tick now if this generation is news. Status writes do not raise it."""
        if generation > self._generation:
            self.wake()

    def wake(self) -> None:
        """Tick now."""
        self._woken.set()

    async def run(self) -> None:
        """Tick until the policy is gone."""
        began = self._clock.monotonic()
        self._metrics.last_tick.labels(*self.entry.key).set(self._clock.wall())
        await self._wait(self._delay)
        due = self._clock.monotonic()
        while True:
            self._woken.clear()
            self._metrics.tick_lag.labels(*self.entry.key).observe(
                max(0.0, self._clock.monotonic() - due)
            )
            check_at = None
            outcome = await self._try()
            if isinstance(outcome, Outcome):
                self._generation, self._interval = outcome.generation, outcome.interval
                if outcome.next_check is not None:
                    check_at = self._clock.monotonic() + outcome.next_check
            elif outcome is None:
                return
            self._metrics.interval.labels(*self.entry.key).set(self._interval)
            now = self._clock.monotonic()
            start = began + self._share * self._interval
            due = next_due(start, self._interval, now, check_at)
            if await self._wait(due - now):
                due = self._clock.monotonic()

    async def _try(self) -> Outcome | Exception | None:
        """One tick, measured; its failure counted and reported."""
        key = self.entry.key
        began = self._clock.monotonic()
        try:
            async with asyncio.timeout(TICK_LIMIT):
                outcome = await self._tick(key)
        # Whatever goes wrong with one policy must not end its loop: the next tick starts afresh.
        except Exception as error:
            self._metrics.tick_failures.labels(*key).inc()
            log.error(
                "tick failed: %s: %s",
                type(error).__name__,
                error,
                extra=about(*key),
                # What the outside world does needs no traceback; what we got wrong does.
                exc_info=not isinstance(error, _OUTSIDE) or log.isEnabledFor(logging.DEBUG),
            )
            return error
        self._metrics.tick_seconds.labels(*key).observe(self._clock.monotonic() - began)
        self._metrics.last_tick.labels(*key).set(self._clock.wall())
        return outcome

    async def _wait(self, seconds: float) -> bool:
        """Sleep, or be woken: True if woken."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return self._woken.is_set()
        sleeping = asyncio.ensure_future(self._clock.sleep(seconds))
        waking = asyncio.ensure_future(self._woken.wait())
        try:
            await asyncio.wait((sleeping, waking), return_when=asyncio.FIRST_COMPLETED)
            return self._woken.is_set()
        finally:
            sleeping.cancel()
            waking.cancel()


class Scheduler:
    """Starts, wakes and stops the loops of policies. Used from the event loop only."""

    def __init__(
        self,
        tick: Callable[[Key], Awaitable[Outcome | None]],
        metrics: OperatorMetrics,
        clock: Clock | None = None,
    ) -> None:
        self._tick = tick
        self._metrics = metrics
        self._clock = clock or Clock()
        self._loops: dict[Key, tuple[PolicyLoop, asyncio.Task[None]]] = {}

    def ensure(self, entry: Entry, *, spread: float = 0.0) -> None:
        """Start the policy's loop, or wake it if the policy was edited.

        `spread`: seconds over which the first ticks of all that start together are spread.
        """
        running = self._loops.get(entry.key)
        if running and running[0].entry.uid == entry.uid and not running[1].done():
            running[0].edited(entry.generation)
            return
        if running:
            self.remove(entry.key)
        loop = PolicyLoop(entry, self._tick, self._metrics, self._clock, spread)
        task = asyncio.create_task(loop.run(), name=f"policy {entry.namespace}/{entry.name}")
        self._loops[entry.key] = (loop, task)
        task.add_done_callback(lambda _: self._ended(loop))
        self._metrics.policies.set(len(self._loops))

    def wake(self, key: Key) -> None:
        """Tick now, if the policy is known."""
        if key in self._loops:
            self._loops[key][0].wake()

    def remove(self, key: Key) -> None:
        """Stop the policy's loop and forget its series."""
        running = self._loops.pop(key, None)
        if running is None:
            return
        running[1].cancel()
        self._metrics.forget(key)
        self._metrics.policies.set(len(self._loops))

    def _ended(self, loop: PolicyLoop) -> None:
        """A loop that found its policy gone; one that was replaced meanwhile is not touched."""
        running = self._loops.get(loop.entry.key)
        if running and running[0] is loop:
            self.remove(loop.entry.key)

    async def stop(self) -> None:
        """Stop all loops."""
        tasks = [task for _, task in self._loops.values()]
        for key in list(self._loops):
            self.remove(key)
        await asyncio.gather(*tasks, return_exceptions=True)
