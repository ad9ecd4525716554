"""Small random workloads on which a small pool is always short of blocks."""

from __future__ import annotations

import random

from hypothesis import strategies as st

from tests.support.plain_replay import PlainRequest

BLOCK_TOKENS = 4
LONGEST = 8  # blocks of a request; pools of at least as many hold any one of them


def workload(seed: int, requests: int) -> list[PlainRequest]:
    """Requests that continue, repeat, fork and shorten one another; prompts that many share."""
    dice = random.Random(seed)
    histories: list[tuple[int, ...]] = [(0,), (0, 1)]
    made = []
    now = 0.0
    for number in range(requests):
        history = dice.choice(histories[-6:] + histories[:2])
        kept = len(history) if dice.random() < 0.6 else dice.randrange(len(history) + 1)
        output = dice.choice([0, 0, 1, 2])
        blocks = history[:kept] + (100 + number,) * dice.choice([0, 1, 1, 2, 4])
        prompt = blocks[: LONGEST - output] or (0,)
        blocks = prompt + (500 + number,) * output
        prompt_tokens = len(prompt) * BLOCK_TOKENS
        if output == 0:
            prompt_tokens += dice.randrange(BLOCK_TOKENS)
        tokens = max(prompt_tokens, len(blocks) * BLOCK_TOKENS) + dice.randrange(4)
        now += dice.choice([0.0, 0.0, 0.5, 0.5, 1.0, 200.0])
        seconds = dice.choice([0.25, 1.0, 2.5, 6.0])
        made.append(
            PlainRequest(
                blocks,
                prompt_tokens,
                tokens,
                arrival=now,
                seconds=seconds,
                final=dice.random() < 0.3,
                preempted=dice.random() < 0.2,
            )
        )
        histories.append(blocks)
    return made


def workloads(requests: int = 24) -> st.SearchStrategy[list[PlainRequest]]:
    """Any workload of up to so many requests; the shorter, the simpler."""
    return st.builds(workload, st.integers(0, 2**32 - 1), st.integers(1, requests))
