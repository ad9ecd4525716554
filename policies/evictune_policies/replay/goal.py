"""A time-to-first-token target in terms of a prefill: which requests miss it, and by how much."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evictune_policies.algorithms.catalog import Cost
from evictune_policies.replay.yardsticks import quantile

Int64 = NDArray[np.int64]
MAX_TOKENS = 2**53
"""More than any request has: a target beyond it is met by all of them."""
Float64 = NDArray[np.float64]


@dataclass(frozen=True)
class Goal:
    """At least `quantile` of the requests see their first token within `slo_seconds`.

    The time is that of the prefill alone: no queueing, unless the replay was timed.
    """

    slo_seconds: float
    quantile: float
    cost: Cost

    def seconds(self, uncached: Int64, prompt: Int64) -> Float64:
        """Of each request's prefill, given its uncached and all its prompt tokens; [n]."""
        past = prompt - uncached
        attended = uncached * (uncached + 2.0 * past) / 2
        return self.cost.linear * uncached + self.cost.quadratic * attended

    @property
    def xi_tokens(self) -> int:
        """The target as a length: the longest prompt whose prefill from nothing is in time.

        It inverts linear * n + quadratic * n * n / 2. Where the cost is linear alone, a request is
        in time exactly if it has at most this many uncached tokens.
        """
        linear, quadratic = self.cost.linear, self.cost.quadratic
        if quadratic == 0:
            tokens = self.slo_seconds / linear
        else:
            root = math.sqrt(linear * linear + 2 * quadratic * self.slo_seconds)
            tokens = 2 * self.slo_seconds / (linear + root)
        return math.floor(min(tokens * (1 + 1e-12), MAX_TOKENS))

    @property
    def fewest(self) -> int:
        """Of how many requests one may be late."""
        return math.ceil(1 / (1 - self.quantile) - 1e-9)

    def allowed(self, requests: int) -> int:
        """How many of this many requests may be late (quantiles are by nearest rank)."""
        return requests - math.ceil(self.quantile * requests - 1e-9)


@dataclass(frozen=True)
class Score:
    """How some requests fared. Times in seconds, lengths in tokens.

    late: requests above the target. allowed: how many may be.
    excess_tokens: the sum over requests of uncached tokens above the goal's xi (TEL).
    seconds: the goal's quantile of the time to first token.
    """

    requests: int
    late: int
    allowed: int
    excess_tokens: int
    seconds: float
    p25: int
    p50: int

    @property
    def met(self) -> bool:
        """Whether the target is met."""
        return self.late <= self.allowed

    @property
    def rank(self) -> tuple[int, int, int]:
        """Less is better: fewest late requests, then least TEL, then least cost to p25 and p50."""
        return (self.late, self.excess_tokens, self.p25 + self.p50)


def score(goal: Goal, uncached: Int64, prompt: Int64, seconds: Float64 | None = None) -> Score:
    """Judge requests by the goal; seconds: measured times, else those of the prefill alone."""
    times = goal.seconds(uncached, prompt) if seconds is None else seconds
    # A rounding error must not make a request late that is exactly in time.
    late = int(np.count_nonzero(times > goal.slo_seconds * (1 + 1e-9)))
    return Score(
        requests=len(times),
        late=late,
        allowed=goal.allowed(len(times)),
        excess_tokens=int(np.maximum(uncached - goal.xi_tokens, 0).sum()),
        seconds=float(quantile(times, goal.quantile)),
        p25=int(quantile(uncached, 0.25)),
        p50=int(quantile(uncached, 0.5)),
    )
