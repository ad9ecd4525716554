"""What a trace does not say and a replay needs: assumed, and said so."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from evictune_policies.replay.traces.trace import Float64


@dataclass(frozen=True)
class Assumptions:
    """Used by the formats that leave these things open, and only by them.

    conversations_per_second: conversations (sessions) begin as a Poisson process of this rate;
        None: the format's own default.
    think_seconds: mean of the exponential time from an answer to the next turn, where the format
        tells no times.
    seed: of those random times: the same trace every time.
    block_tokens: of formats without block ids.
    share_prompts: sessions with equally long tool definitions and system prompts have the same.
    """

    conversations_per_second: float | None = None
    think_seconds: float = 10.0
    seed: int = 0
    block_tokens: int = 16
    share_prompts: bool = False

    def __post_init__(self) -> None:
        """Raise ValueError for what no trace can be made with."""
        rate = self.conversations_per_second
        if rate is not None and not 0 < rate < np.inf:
            raise ValueError(
                f"conversations per second: {rate} is not a positive number; give the rate at "
                "which conversations begin"
            )
        if not 0 <= self.think_seconds < np.inf:
            raise ValueError(
                f"think seconds: {self.think_seconds} is negative or not a number; give the mean "
                "time from an answer to the next turn"
            )
        if self.block_tokens < 1:
            raise ValueError(f"block tokens: {self.block_tokens}; a block has at least 1 token")

    def beginnings(self, conversations: int, default_rate: float) -> Float64:
        """When each conversation begins, in seconds; the first one at 0."""
        rate = self.conversations_per_second or default_rate
        between = self._random(0).exponential(1 / rate, conversations)
        between[:1] = 0.0
        times: Float64 = np.cumsum(between)
        return times

    def think_times(self, turns: int) -> Float64:
        """Think times, in seconds, in the order in which they are used."""
        return self._random(1).exponential(self.think_seconds, turns)

    def _random(self, stream: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, stream])


DEFAULTS = Assumptions()
