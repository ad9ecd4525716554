"""Conversations like ShareGPT's, as token counts: lengths drawn from a stated model.

What is published of the lengths: 3.5 turns a conversation and 100 tokens a prompt on average
(arXiv 2510.15152, appendix G.2), 338 tokens an answer (Kwon et al., PagedAttention, SOSP 2023,
figure 11). The rest is assumed: all three are log-normal, heavy-tailed, and a conversation ends
before it exceeds the model's context, Vicuna-7B's 4,096 tokens; that leaves 3.1 turns on average.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

CONTEXT_TOKENS = 4_096


def write_conversations(path: Path, conversations: int, seed: int) -> None:
    """Write a file in ShareGPT's format, with `tokens` instead of texts."""
    random = np.random.default_rng(seed)

    def lengths(mean: float, sigma: float, count: int) -> NDArray[np.int64]:
        drawn = random.lognormal(np.log(mean) - sigma**2 / 2, sigma, count)
        return np.maximum(1, np.ceil(drawn)).astype(np.int64)

    written = []
    for turns in lengths(3.0, 1.0, conversations):  # rounded up, they are 3.5
        prompts, answers = lengths(100, 1.2, turns), lengths(338, 0.8, turns)
        fits = np.cumsum(prompts + answers) <= CONTEXT_TOKENS
        messages = [
            {"from": author, "tokens": int(tokens)}
            for prompt, answer in zip(prompts[fits], answers[fits], strict=True)
            for author, tokens in (("human", prompt), ("gpt", answer))
        ]
        if messages:
            written.append({"conversations": messages})
    path.write_text(json.dumps(written))
