"""Workloads with pressure, as tokens for vLLM's own scheduler and as a trace for the replay.

All times are multiples of 1/64 second, and so are the times of steps in the tests: sums are exact,
so that two clocks that add them up differently agree.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from evictune_policies.algorithms.pool import NONE
from evictune_policies.replay.traces.trace import Trace

BLOCK = 4
VOCABULARY = 1000


@dataclass(frozen=True)
class Turn:
    """One request.

    Attributes:
        prompt, output: Token ids.
        arrival: Seconds; without a meaning where `think` is given.
        previous: The turn before, an index; NONE: there is none.
        think: Seconds from the finish of `previous` to the arrival; NaN: `arrival` is fixed.
    """

    prompt: tuple[int, ...]
    output: tuple[int, ...]
    arrival: float = 0.0
    previous: int = NONE
    think: float = float("nan")

    @property
    def tokens(self) -> tuple[int, ...]:
        """Prompt and output."""
        return self.prompt + self.output


def trace_of(turns: list[Turn], outputs_known: bool = True) -> Trace:
    """The trace that a reader would make of these requests, by arrival."""
    contents: dict[tuple[int, tuple[int, ...]], int] = {}  # (parent, tokens of the block)
    parent: list[int] = []
    depth: list[int] = []
    chains: list[list[int]] = []
    known = [turn.tokens if outputs_known else turn.prompt for turn in turns]
    for tokens in known:
        chain: list[int] = []
        for first in range(0, len(tokens), BLOCK):
            before = chain[-1] if chain else NONE
            content = contents.setdefault((before, tokens[first : first + BLOCK]), len(parent))
            if content == len(parent):
                parent.append(before)
                depth.append(len(chain))
            chain.append(content)
        chains.append(chain)
    return Trace(
        name="workload",
        block_tokens=BLOCK,
        arrival=np.array([turn.arrival for turn in turns]),
        prompt_tokens=np.array([len(turn.prompt) for turn in turns], np.int64),
        output_tokens=np.array([len(turn.output) for turn in turns], np.int64),
        starts=np.cumsum([0, *map(len, chains)], dtype=np.int64),
        contents=np.array([content for chain in chains for content in chain], np.int32),
        known_tokens=np.array([len(tokens) for tokens in known], np.int64),
        parent=np.array(parent, np.int32),
        depth=np.array(depth, np.int32),
        previous=np.array([turn.previous for turn in turns], np.int32),
        think=np.array([turn.think for turn in turns]),
        tenant=np.zeros(len(turns), np.int32),
        final=np.zeros(len(turns), np.bool_),
    )


class Words:
    """Random tokens and times from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def some(self, least: int, most: int) -> tuple[int, ...]:
        """So many tokens; every third time a whole number of blocks."""
        count = self.random.randint(least, most)
        if self.random.random() < 1 / 3:
            count = max(BLOCK, count // BLOCK * BLOCK)
        return tuple(self.random.randrange(VOCABULARY) for _ in range(count))

    def seconds(self, most: int) -> float:
        """A multiple of 1/64 up to `most`; often zero, so that requests arrive together."""
        return 0.0 if self.random.random() < 0.3 else self.random.randrange(64 * most) / 64


def conversations(seed: int, requests: int = 60) -> list[Turn]:
    """People who come back: every turn repeats all that was said and adds to it."""
    words = Words(seed)
    turns: list[Turn] = []
    last: dict[int, int] = {}  # conversation -> its last turn
    now = 0.0
    for _ in range(requests):
        person = words.random.randrange(5)
        now += words.seconds(4)
        before = last.get(person, NONE)
        if before != NONE and len(turns[before].tokens) > 70:
            before = NONE  # a new conversation
        think = words.seconds(6) if before != NONE else float("nan")
        if before != NONE and words.random.random() < 0.2:  # have the last answer made anew
            turns.append(Turn(turns[before].prompt, words.some(1, 12), now, before, think))
            last[person] = len(turns) - 1
            continue
        said = turns[before].tokens if before != NONE else ()
        question = words.some(1, 20)
        # Whole blocks in all: the last one is computed again when the prompt repeats.
        if words.random.random() < 0.3 and (len(said) + len(question)) % BLOCK:
            question += words.some(1, 1) * (BLOCK - (len(said) + len(question)) % BLOCK)
        turns.append(Turn(said + question, words.some(1, 12), now, before, think))
        last[person] = len(turns) - 1
    return turns


def shared_prompts(seed: int, requests: int = 60) -> list[Turn]:
    """Few long system prompts, many short questions; some are asked again, word for word."""
    words = Words(seed)
    systems = [words.some(12, 40) for _ in range(4)]
    turns: list[Turn] = []
    now = 0.0
    for _ in range(requests):
        now += words.seconds(3)
        if turns and words.random.random() < 0.25:
            prompt = words.random.choice(turns[-6:]).prompt
        else:
            prompt = words.random.choice(systems) + words.some(1, 8)
        turns.append(Turn(prompt, words.some(1, 10), now))
    return turns


def floods(seed: int, requests: int = 60) -> list[Turn]:
    """Conversations with bursts of long requests between them that nobody repeats."""
    words = Words(seed)
    turns = conversations(seed, requests // 2)
    now = 0.0
    while len(turns) < requests:
        now += words.seconds(20)
        for _ in range(words.random.randint(1, 6)):
            turns.append(Turn(words.some(20, 60), words.some(1, 16), now))
    return by_arrival(turns)


def by_arrival(turns: list[Turn]) -> list[Turn]:
    """The same requests in order of arrival, `previous` renumbered."""
    order = sorted(range(len(turns)), key=lambda index: turns[index].arrival)
    place = {index: number for number, index in enumerate(order)}
    place[NONE] = NONE
    return [
        Turn(turn.prompt, turn.output, turn.arrival, place[turn.previous], turn.think)
        for turn in (turns[index] for index in order)
    ]


WORKLOADS: dict[str, Callable[..., list[Turn]]] = {
    "conversations": conversations,
    "shared prompts": shared_prompts,
    "floods": floods,
}
