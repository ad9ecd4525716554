"""The demonstration's load, played in the background until a test has seen enough."""

from __future__ import annotations

import asyncio
import statistics
import threading
from types import TracebackType
from typing import Self

import aiohttp
import numpy as np

from demo.constants import MODEL, Load, Phase
from demo.load import FIRST_WORD, Client, sequence


def conversations(count: int, one_shots: int) -> Load:
    """`count` long conversations, `one_shots` prompts between their turns, without end."""
    phase = Phase("always", "always", count, 1_000_000, True)
    return Load(document_tokens=1400, one_shots=one_shots, output_tokens=2, phases=(phase,))


def prefill_seconds(url: str, tokens: int, samples: int = 5) -> float:
    """Median time to the first token of a prompt that the engine has never seen."""
    random = np.random.default_rng()

    async def measure() -> list[float]:
        async with aiohttp.ClientSession() as session:
            client = Client(session, url)
            prompts = random.integers(FIRST_WORD, MODEL.vocabulary, size=(samples + 1, tokens))
            answers = [await client.ask(prompt.tolist(), 1) for prompt in prompts]
            # The first one finds the engine cold.
            return [answer.ttft for answer in answers[1:]]

    return statistics.median(asyncio.run(measure()))


class BackgroundLoad:
    """Plays a load within a `with` block, one request at a time.

    A request that fails ends it, and the block raises it.
    """

    def __init__(self, url: str, load: Load) -> None:
        self._url = url
        self._load = load
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="load")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()
        if error is None and self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            asyncio.run(self._play())
        except BaseException as error:  # noqa: BLE001 - raised in the thread that waits for us
            self._error = error

    async def _play(self) -> None:
        async with aiohttp.ClientSession() as session:
            client = Client(session, self._url)
            for request in sequence(self._load):
                if self._stop.is_set():
                    return
                await client.ask(request.prompt, request.output_tokens)
