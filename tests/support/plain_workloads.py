"""Small random workloads on which a small pool is always short of blocks."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.support.plain_replay import PlainRequest

BLOCK_TOKENS = 4
LONGEST = 10  # blocks of a request; pools of at least as many hold any one of them


@st.composite
def conversations(draw: st.DrawFn, requests: int = 14) -> list[PlainRequest]:
    """Requests that continue, repeat, fork and shorten one another; prompts that many share."""
    histories: list[tuple[int, ...]] = [(0,), (0, 1), ()]
    made = []
    now = 0.0
    for label in range(draw(st.integers(1, requests))):
        history = draw(st.sampled_from(histories))
        kept = draw(st.integers(max(0, len(history) - 2), len(history)))
        blocks = history[:kept] + (100 + label,) * draw(st.integers(0, 3))
        output = draw(st.integers(0, 2))
        prompt = blocks[: LONGEST - output] or (0,)
        blocks = prompt + (500 + label,) * output
        prompt_tokens = len(prompt) * BLOCK_TOKENS
        if output == 0:
            prompt_tokens += draw(st.integers(0, BLOCK_TOKENS - 1))
        tokens = max(prompt_tokens, len(blocks) * BLOCK_TOKENS) + draw(st.integers(0, 3))
        now += draw(st.sampled_from([0.0, 0.5, 1.0, 100.0, 400.0]))
        seconds = draw(st.sampled_from([0.25, 1.0, 2.5]))
        made.append(PlainRequest(blocks, prompt_tokens, tokens, now, seconds))
        histories.append(blocks)
    return made
