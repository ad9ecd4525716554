"""Time that passes only when a test says so."""

from __future__ import annotations

import asyncio

from evictune.loop import Clock

EPOCH = 1_796_000_000.0


class FakeClock:
    """A `Clock` whose sleepers wake in order while `advance` moves time."""

    def __init__(self) -> None:
        self.now = 0.0
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []
        self.clock = Clock(lambda: EPOCH + self.now, lambda: self.now, self.sleep)

    async def sleep(self, seconds: float) -> None:
        """Until time has been advanced by this much."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleepers.append((self.now + seconds, future))
        await future

    async def advance(self, seconds: float) -> None:
        """Let time pass, waking who is due on the way."""
        end = self.now + seconds
        await settle()
        while due := [each for each in self._sleepers if each[0] <= end and not each[1].done()]:
            at, future = min(due, key=lambda each: each[0])
            self.now = max(self.now, at)
            future.set_result(None)
            self._sleepers = [each for each in self._sleepers if not each[1].done()]
            await settle()
        self.now = end


async def settle() -> None:
    """Let every task run until it waits."""
    for _ in range(25):
        await asyncio.sleep(0)
