"""What was seen in one arm: every request's outcome, xi in force, and what the loop said."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from demo.load import Answer, Request


@dataclass(frozen=True)
class Outcome:
    """A request of the load and its answer."""

    request: Request
    answer: Answer


@dataclass(frozen=True)
class Sample:
    """What the engine itself said was in force at a time; xi_tokens None is stock LRU."""

    time: float
    xi_tokens: int | None
    revision: int


@dataclass(frozen=True)
class Step:
    """Something the loop said or did; reason is evictune's word for it."""

    time: float
    reason: str
    message: str


@dataclass
class Arm:
    """One play of the load. Times are seconds since the epoch.

    computed_tokens: prompt tokens that had to be computed, by the engine's own counter.
    acknowledged_revision: of the knob document, by the policy's status when the load had ended.
    """

    name: str
    title: str
    outcomes: list[Outcome] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    computed_tokens: int = 0
    acknowledged_revision: int = 0

    @property
    def uncached_tokens(self) -> int:
        """Prompt tokens that had to be computed, by the API's usage field."""
        return sum(outcome.answer.uncached_tokens for outcome in self.outcomes)

    def position(self, time: float) -> int:
        """How many requests had begun by then: the arms' common clock."""
        return sum(outcome.answer.started <= time for outcome in self.outcomes)


@dataclass(frozen=True)
class Numbers:
    """Percentiles by nearest rank. ttft in seconds; tokens of prompts; hit_ratio 0..1."""

    requests: int
    ttft_p50: float
    ttft_p95: float
    ttft_p99: float
    uncached_p50: int
    uncached_p95: int
    uncached_p99: int
    uncached_total: int
    hit_ratio: float


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of the values do not exceed (nearest rank)."""
    if not values:
        raise ValueError("a percentile of no values")
    ordered = sorted(values)
    return ordered[max(math.ceil(share * len(ordered)), 1) - 1]


def numbers(outcomes: Sequence[Outcome]) -> Numbers:
    """The figures of a stretch of requests (at least one)."""
    ttft = [outcome.answer.ttft for outcome in outcomes]
    uncached = [outcome.answer.uncached_tokens for outcome in outcomes]
    return Numbers(
        requests=len(outcomes),
        ttft_p50=percentile(ttft, 0.50),
        ttft_p95=percentile(ttft, 0.95),
        ttft_p99=percentile(ttft, 0.99),
        uncached_p50=int(percentile(uncached, 0.50)),
        uncached_p95=int(percentile(uncached, 0.95)),
        uncached_p99=int(percentile(uncached, 0.99)),
        uncached_total=sum(uncached),
        hit_ratio=1 - sum(uncached) / sum(o.answer.prompt_tokens for o in outcomes),
    )


def of_phase(outcomes: Iterable[Outcome], phase: str) -> list[Outcome]:
    """The outcomes of one phase, in order."""
    return [outcome for outcome in outcomes if outcome.request.phase == phase]


def last_part(outcomes: Sequence[Outcome], share: float) -> Sequence[Outcome]:
    """The last `share` of the requests, rounded up."""
    return outcomes[len(outcomes) - math.ceil(share * len(outcomes)) :]


def trailing(
    outcomes: Sequence[Outcome], window: int, figure: Callable[[Numbers], float]
) -> list[tuple[int, float]]:
    """A figure over the last `window` requests, after each request: (request number, figure)."""
    return [
        (end, figure(numbers(outcomes[max(0, end - window) : end])))
        for end in range(1, len(outcomes) + 1)
    ]
