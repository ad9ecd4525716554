"""The load: a fixed sequence of requests, and a client that plays it one request at a time.

Prompts are token ids that follow from the seed alone. They do not depend on what the engine
answers, so both arms get the same requests in the same order.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import aiohttp
import numpy as np

from demo.constants import LOAD, MODEL, SERVED_MODEL, Load, Phase

Prompt = tuple[int, ...]

FIRST_WORD = 3
"""Token ids below are the special ones."""


class Kind(StrEnum):
    """What a request is."""

    TURN = "turn"
    ONE_SHOT = "one-shot"


@dataclass(frozen=True)
class Request:
    """One prompt. `index` counts over all phases; conversation is -1 outside of conversations."""

    index: int
    phase: str
    counted: bool
    kind: Kind
    conversation: int
    prompt: Prompt
    output_tokens: int


@dataclass(frozen=True)
class Answer:
    """What the client saw. Times: seconds (started: time.time()); tokens as the API counts them."""

    started: float
    ttft: float
    duration: float
    prompt_tokens: int
    cached_tokens: int

    @property
    def uncached_tokens(self) -> int:
        """Prompt tokens that the engine had to compute."""
        return self.prompt_tokens - self.cached_tokens


class LoadError(RuntimeError):
    """The engine refused or did not answer as its API says."""


def sequence(load: Load = LOAD, vocabulary: int = MODEL.vocabulary) -> Iterator[Request]:
    """Every request that both arms are sent, in order."""
    return _requests(load, load.phases, vocabulary)


def encore(load: Load = LOAD, vocabulary: int = MODEL.vocabulary) -> Iterator[Request]:
    """What may follow upon `sequence`: the conversations go on."""
    requests = _requests(load, (*load.phases, load.encore), vocabulary)
    return (request for request in requests if request.phase == load.encore.name)


def _requests(load: Load, phases: Sequence[Phase], vocabulary: int) -> Iterator[Request]:
    prompts = _prompts(load, phases, _Writer(load, vocabulary))
    for index, (phase, kind, owner, prompt) in enumerate(prompts):
        yield Request(index, phase.name, phase.counted, kind, owner, prompt, load.output_tokens)


def _prompts(
    load: Load, phases: Sequence[Phase], writer: _Writer
) -> Iterator[tuple[Phase, Kind, int, Prompt]]:
    for phase in phases:
        for _ in range(phase.rounds):
            for conversation in range(phase.conversations):
                yield phase, Kind.TURN, conversation, writer.turn(conversation)
                for _ in range(load.one_shots):
                    yield phase, Kind.ONE_SHOT, -1, writer.words(load.one_shot_tokens)


class _Writer:
    """Writes prompts: who has said what so far."""

    def __init__(self, load: Load, vocabulary: int) -> None:
        self._load = load
        self._vocabulary = vocabulary
        self._random = np.random.default_rng(load.seed)
        self._documents: dict[int, Prompt] = {}
        self._sessions: dict[int, Prompt] = {}

    def words(self, count: int) -> Prompt:
        """Text never seen before and never again."""
        return tuple(self._random.integers(FIRST_WORD, self._vocabulary, size=count).tolist())

    def turn(self, conversation: int) -> Prompt:
        """The conversation's next prompt: all that was said, and what is new."""
        load = self._load
        longest = load.document_tokens + (load.turns - 1) * load.growth_tokens
        if conversation not in self._documents:
            self._documents[conversation] = self.words(load.document_tokens)
            turns_before = conversation * load.stagger % load.turns
            said = self._documents[conversation] + self.words(turns_before * load.growth_tokens)
        elif len(self._sessions[conversation]) >= longest:
            said = self._documents[conversation]
        else:
            said = self._sessions[conversation] + self.words(load.growth_tokens)
        self._sessions[conversation] = said
        return said


class Client:
    """Sends one request at a time to an OpenAI-compatible completions API, streaming."""

    def __init__(self, session: aiohttp.ClientSession, url: str, model: str = SERVED_MODEL) -> None:
        self._session = session
        self._url = f"{url}/v1/completions"
        self._model = model

    async def ask(self, prompt: Sequence[int], output_tokens: int) -> Answer:
        """Send one prompt of token ids and read the stream to its end. Raises LoadError."""
        try:
            return await self._ask(prompt, output_tokens)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise LoadError(f"{self._url}: {error or type(error).__name__}") from error

    async def _ask(self, prompt: Sequence[int], output_tokens: int) -> Answer:
        started, clock = time.time(), time.perf_counter()
        first: float | None = None
        usage: dict[str, Any] | None = None
        async with self._session.post(self._url, json=self._body(prompt, output_tokens)) as reply:
            if reply.status != 200:
                raise LoadError(f"{self._url} answered {reply.status}: {await reply.text()}")
            async for event in _events(reply):
                if "error" in event:
                    raise LoadError(f"{self._url}: {event['error']}")
                if first is None and event["choices"]:
                    first = time.perf_counter()
                usage = event.get("usage") or usage
        if first is None or usage is None or usage.get("prompt_tokens_details") is None:
            raise LoadError(
                f"{self._url}: the stream ended without tokens, or without "
                "prompt_tokens_details: start the engine with --enable-prompt-tokens-details"
            )
        return Answer(
            started=started,
            ttft=first - clock,
            duration=time.perf_counter() - clock,
            prompt_tokens=int(usage["prompt_tokens"]),
            cached_tokens=int(usage["prompt_tokens_details"]["cached_tokens"] or 0),
        )

    def _body(self, prompt: Sequence[int], output_tokens: int) -> dict[str, object]:
        return {
            "model": self._model,
            "prompt": list(prompt),
            "max_tokens": output_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }


async def _events(reply: aiohttp.ClientResponse) -> AsyncIterator[dict[str, Any]]:
    """The JSON payloads of a stream of server-sent events, until [DONE]."""
    async for line in reply.content:
        text = line.decode().strip()
        if text.startswith("data: ") and text != "data: [DONE]":
            yield json.loads(text.removeprefix("data: "))
