"""Requests from many clients at once, spread over the Ready pods of a Deployment as a Service does.

Every request is counted, and one that is not answered is told: what a restart may cost is what its
clients say it cost.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import aiohttp
import numpy as np

from demo.constants import MODEL, SERVED_MODEL
from demo.load import FIRST_WORD
from tests.support.objects import Object, Objects
from tests.support.vllm_pod import PORT

LOOK_INTERVAL = 0.5


@dataclass(frozen=True)
class Shape:
    """clients: each sends its next request when the one before is answered. Lengths in tokens."""

    clients: int
    prompt_tokens: int
    output_tokens: int


@dataclass
class Tally:
    """What the clients got: answers by pod, and in words each request that had none."""

    answered: Counter[str] = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)


class BalancedLoad:
    """Runs within a `with` block; requests in flight at its end are cut off, and not counted.

    The shape may be changed at any time: all clients give up what they wait for, and come anew.
    """

    def __init__(self, objects: Objects, shape: Shape) -> None:
        self.shape = shape
        self.tally = Tally()
        self._objects = objects
        self._random = np.random.default_rng(20)
        self._ready: dict[str, str] = {}
        self._in_flight: Counter[str] = Counter()
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="clients")

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
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        timeout = aiohttp.ClientTimeout(total=600)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            while not self._stop.is_set():
                await self._serve(session, self.shape)

    async def _serve(self, session: aiohttp.ClientSession, shape: Shape) -> None:
        """The clients of one shape, while it is the shape."""
        self._ready = await asyncio.to_thread(self._look)
        async with asyncio.TaskGroup() as group:
            clients = [group.create_task(self._client(session)) for _ in range(shape.clients)]
            while self.shape is shape and not self._stop.is_set():
                await asyncio.sleep(LOOK_INTERVAL)
                self._ready = await asyncio.to_thread(self._look)
            for client in clients:
                client.cancel()

    def _look(self) -> dict[str, str]:
        """Name and address of the pods that a Service would send requests to."""
        pods = self._objects.all("pod")
        return {
            pod["metadata"]["name"]: pod["status"]["podIP"] for pod in pods if takes_requests(pod)
        }

    async def _client(self, session: aiohttp.ClientSession) -> None:
        while True:
            if self._ready:
                await self._ask(session)
            else:
                await asyncio.sleep(LOOK_INTERVAL)

    async def _ask(self, session: aiohttp.ClientSession) -> None:
        """One request to the pod with the fewest."""
        pod = min(self._ready, key=lambda name: self._in_flight[name])
        self._in_flight[pod] += 1
        try:
            await self._post(session, self._ready[pod])
            self.tally.answered[pod] += 1
        except (aiohttp.ClientError, TimeoutError) as error:
            self.tally.failed.append(f"{pod}: {error or type(error).__name__}")
            await asyncio.sleep(LOOK_INTERVAL)
        finally:
            self._in_flight[pod] -= 1

    async def _post(self, session: aiohttp.ClientSession, address: str) -> None:
        words = self._random.integers(
            FIRST_WORD, MODEL.vocabulary, size=self.shape.prompt_tokens
        ).tolist()
        body = {
            "model": SERVED_MODEL,
            "prompt": words,
            "max_tokens": self.shape.output_tokens,
            "ignore_eos": True,
        }
        async with session.post(f"http://{address}:{PORT}/v1/completions", json=body) as answer:
            answer.raise_for_status()
            await answer.read()


def takes_requests(pod: Object) -> bool:
    """Whether a pod that is not leaving is Ready."""
    conditions = pod["status"].get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
