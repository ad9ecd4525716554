"""What a replay found out, request by request. `yardsticks` reads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

Fidelity = Literal["order", "timed"]


@dataclass(frozen=True)
class Result:
    """One policy, one capacity, one pass over a trace of n requests.

    policy, xi_tokens, q_hat_tokens: what was in force; None: the policy has no such parameter.
    capacity_blocks: blocks that can hold something (vLLM's num_gpu_blocks less its null block).
    fidelity: "order": one request at a time. "timed": requests overlap, running ones hold blocks.
    prompt_tokens, cached_tokens: of each request's prompt: all, and those found in the cache; [n].
    recomputed: tokens that the cache would have held, had nothing been evicted; [n]. What else was
        not cached has not been there before, or is never looked up (a last token, a partial block).
    hit_age, eviction_age: blocks by the seconds since a request last let go of them, when they were
        found and when they were evicted; in the bins of `mechanics.AGE_BOUNDS`.
    first_token_seconds: from arrival to the first token, where time was modelled; [n].
    preemptions: how often a request lost its blocks to others, where requests overlap; [n].
    seconds: that the replay took.
    """

    policy: str
    xi_tokens: int | None
    q_hat_tokens: int | None
    capacity_blocks: int
    block_tokens: int
    fidelity: Fidelity
    prompt_tokens: Int64
    cached_tokens: Int64
    recomputed: Int64
    hit_age: Int64
    eviction_age: Int64
    seconds: float
    first_token_seconds: Float64 | None = None
    preemptions: Int64 | None = None

    @property
    def requests(self) -> int:
        """How many requests there were: n."""
        return len(self.prompt_tokens)

    @property
    def uncached_tokens(self) -> Int64:
        """Prompt tokens that had to be computed; [n]."""
        return self.prompt_tokens - self.cached_tokens

    @property
    def recomputed_tokens(self) -> int:
        """Tokens computed again because they were evicted, of all requests."""
        return int(self.recomputed.sum())
