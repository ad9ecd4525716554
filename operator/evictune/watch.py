"""Kopf, kept running: in a thread of its own, and started anew when it ends by itself.

A watch that the API server ends with anything but "too old", such as 404 once the definition is
deleted, ends Kopf; and when Kopf ends it cancels every task of its event loop. Neither may touch
the policies' loops, so that Kopf has a loop to itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Awaitable, Callable

import uvloop

RETRY_INTERVAL = 5.0

log = logging.getLogger(__name__)


class KeptRunning:
    """Runs `operate` again and again until it is stopped. Used from one event loop.

    operate: is given the event that asks it to end, and runs in a loop of its own.
    ended: told, in this loop, each time it ended by itself.
    """

    def __init__(
        self,
        operate: Callable[[asyncio.Event], Awaitable[None]],
        ended: Callable[[], None],
        retry_interval: float = RETRY_INTERVAL,
    ) -> None:
        self._operate = operate
        self._ended = ended
        self._retry_interval = retry_interval
        self._stopped = asyncio.Event()
        self._lock = threading.Lock()
        self._inside: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None

    async def run(self) -> None:
        """Until `stop`."""
        while not self._stopped.is_set():
            try:
                await asyncio.to_thread(uvloop.run, self._round())
            # Whatever ended it: the next round starts from a list, and misses nothing.
            except Exception as error:
                log.error(
                    "the watch of policies ended (%s: %s): starting it again",
                    type(error).__name__,
                    error,
                    exc_info=log.isEnabledFor(logging.DEBUG),
                )
                self._ended()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stopped.wait(), self._retry_interval)

    def renew(self) -> None:
        """End this round; the next one finds out anew what there is to watch."""
        with self._lock:
            if self._inside is not None:
                loop, event = self._inside
                loop.call_soon_threadsafe(event.set)

    def stop(self) -> None:
        """End this round, and begin no other."""
        self._stopped.set()
        self.renew()

    async def _round(self) -> None:
        event = asyncio.Event()
        with self._lock:
            self._inside = asyncio.get_running_loop(), event
            if self._stopped.is_set():
                event.set()
        try:
            await self._operate(event)
        finally:
            with self._lock:
                self._inside = None
