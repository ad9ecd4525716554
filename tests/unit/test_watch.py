"""What watches the policies is started anew when it ends, and ends when it is told to."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest
from evictune.watch import KeptRunning

Operate = Callable[[asyncio.Event], Awaitable[None]]


def play(operate: Operate, scenario: Callable[[KeptRunning], Awaitable[None]]) -> list[int]:
    """The threads in which `ended` was told."""
    told: list[int] = []

    async def run() -> None:
        kept = KeptRunning(operate, lambda: told.append(threading.get_ident()), 0.01)
        running = asyncio.create_task(kept.run())
        try:
            await scenario(kept)
        finally:
            kept.stop()
            await asyncio.wait_for(running, 10)

    asyncio.run(run())
    return told


async def until(check: Callable[[], bool]) -> None:
    for _ in range(1000):
        if check():
            return
        await asyncio.sleep(0.005)
    raise TimeoutError


def test_one_that_fails_is_started_again(caplog: pytest.LogCaptureFixture) -> None:
    rounds: list[int] = []

    async def operate(stop: asyncio.Event) -> None:
        rounds.append(threading.get_ident())
        if len(rounds) < 3:
            raise LookupError("404 page not found")
        await stop.wait()

    async def scenario(kept: KeptRunning) -> None:
        await until(lambda: len(rounds) == 3)

    told = play(operate, scenario)
    assert told == [threading.get_ident()] * 2
    assert threading.get_ident() not in rounds
    assert caplog.text.count("LookupError: 404 page not found") == 2
    assert "Traceback" not in caplog.text


def test_what_it_cancels_at_its_end_is_its_own() -> None:
    """Kopf cancels every task of its loop."""
    rounds: list[int] = []

    async def operate(stop: asyncio.Event) -> None:
        rounds.append(1)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await stop.wait()

    async def scenario(kept: KeptRunning) -> None:
        policy = asyncio.create_task(asyncio.sleep(60))
        await until(lambda: bool(rounds))
        kept.renew()
        await until(lambda: len(rounds) == 2)
        assert not policy.done()
        policy.cancel()

    assert play(operate, scenario) == []


def test_a_stop_before_it_began_is_not_missed() -> None:
    async def operate(stop: asyncio.Event) -> None:
        await stop.wait()

    async def scenario(kept: KeptRunning) -> None:
        kept.stop()

    assert play(operate, scenario) == []
