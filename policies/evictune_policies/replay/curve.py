"""Hit ratio over capacity or over load, and the knee of either curve.

The knee is found as Kneedle does (Satopää, Albrecht, Irwin, Raghavan: Finding a "Kneedle" in a
Haystack, ICDCSW 2011): on the curve scaled to the unit square, the point farthest from the line
between its ends, unless that is less than `sensitivity` mean steps of x away. Of several, the
farthest is taken, and nothing is smoothed: replays are not noisy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evictune_policies.replay.simulation.requests import requests_of
from evictune_policies.replay.simulation.result import Result
from evictune_policies.replay.traces.trace import Trace
from evictune_policies.replay.yardsticks import hit_ratio

Float64 = NDArray[np.float64]
Loading = Literal["superposed", "sped up"]


class Shape(Enum):
    """What the curve does at its knee."""

    HOLDS_UNTIL = "holds up to here, and falls beyond"
    LEVELS_OFF = "has fallen most of the way here, and levels off"
    SATURATES = "has risen most of the way here; more brings little"
    TAKES_OFF = "rises slowly up to here, and steeply beyond"


@dataclass(frozen=True)
class Knee:
    """A point of the curve. distance: from the line between the curve's ends, 0..1."""

    x: float
    y: float
    shape: Shape
    distance: float


def find_knee(x: ArrayLike, y: ArrayLike, sensitivity: float = 1.0) -> Knee | None:
    """The knee of a curve; None: it is too straight, or has less than three points.

    A falling curve that holds at first and levels off in the end has two; the first one counts,
    because up to there all is well. Raises ValueError unless x ascends.
    """
    xs, ys = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    if np.any(np.diff(xs) <= 0):
        raise ValueError("a curve's x has to ascend")
    height = float(np.ptp(ys))
    if len(xs) < 3 or height == 0:
        return None
    across = (xs - xs[0]) / (xs[-1] - xs[0])
    line = ys[0] + (ys[-1] - ys[0]) * across
    above = (ys - line) / height
    rises = bool(ys[-1] >= ys[0])
    threshold = sensitivity / (len(xs) - 1)
    high, low = int(above.argmax()), int(above.argmin())
    over, under = float(above[high]), float(-above[low])
    if over > threshold and (over >= under or not rises):
        shape = Shape.SATURATES if rises else Shape.HOLDS_UNTIL
        return Knee(float(xs[high]), float(ys[high]), shape, over)
    if under > threshold:
        shape = Shape.TAKES_OFF if rises else Shape.LEVELS_OFF
        return Knee(float(xs[low]), float(ys[low]), shape, under)
    return None


@dataclass(frozen=True)
class Curve:
    """One policy's results at ascending x: capacities in blocks, or multiples of the load."""

    over: Literal["capacity", "load"]
    x: tuple[float, ...]
    results: tuple[Result, ...]

    @property
    def hit_ratios(self) -> Float64:
        """Per point, 0..1."""
        return np.array([hit_ratio(result) for result in self.results])

    @property
    def knee(self) -> Knee | None:
        """Of the hit ratio; capacities count by their logarithm, as they are chosen."""
        if self.over == "load":
            return find_knee(self.x, self.hit_ratios)
        knee = find_knee(np.log(self.x), self.hit_ratios)
        if knee is None:
            return None
        return Knee(round(float(np.exp(knee.x))), knee.y, knee.shape, knee.distance)


def capacities(trace: Trace, points: int = 16) -> list[int]:
    """Evenly spaced by their logarithm, from the longest request to a pool that loses nothing."""
    longest = int(requests_of(trace).blocks.max(initial=1))
    spaced = np.geomspace(longest, longest + max(1, trace.distinct), points)
    return sorted({round(float(capacity)) for capacity in spaced})


def over_capacity(sizes: Iterable[int], replay: Callable[[int], Result]) -> Curve:
    """The curve at ascending capacities, up to the first at which nothing is lost any more."""
    results: list[Result] = []
    for size in sizes:
        results.append(replay(size))
        if results[-1].recomputed_tokens == 0:
            break
    return Curve("capacity", tuple(float(r.capacity_blocks) for r in results), tuple(results))


def loaded(
    trace: Trace, factors: Sequence[float], how: Loading = "superposed"
) -> Iterator[tuple[float, Trace]]:
    """The trace at multiples of its load.

    superposed: so many copies at once, each with contents of its own: more users. sped up: the same
    requests in less time. Replayed one request at a time, that changes nothing but for policies
    that look at the clock.

    Raises:
        ValueError: A factor that is not a whole number where copies are made, or not positive.
    """
    for factor in factors:
        if how == "sped up":
            yield factor, trace.sped_up(factor)
        elif factor < 1 or factor != int(factor):
            raise ValueError(
                f"load {factor:g}: a trace can be superposed a whole number of times; "
                f"use {max(1, round(factor))}"
            )
        else:
            yield factor, trace if factor == 1 else trace.superposed(int(factor))


def over_load(loads: Iterable[tuple[float, Trace]], replay: Callable[[Trace], Result]) -> Curve:
    """The curve over what `loaded` yields, factors ascending."""
    points = [(factor, replay(trace)) for factor, trace in loads]
    return Curve("load", tuple(x for x, _ in points), tuple(result for _, result in points))
