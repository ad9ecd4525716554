"""Knees of curves whose knee is known, and how curves are made. No compiler needed."""

from __future__ import annotations

import numpy as np
import pytest
from evictune_policies.replay.curve import (
    Curve,
    Shape,
    capacities,
    find_knee,
    loaded,
    over_capacity,
    over_load,
)
from evictune_policies.replay.simulation.result import Result
from evictune_policies.replay.traces.trace import Trace

NO_AGES = np.zeros(32, np.int64)


def result(hits: int, capacity: int = 1, recomputed: int = 0) -> Result:
    """Of one request of 100 blocks of one token."""
    return Result(
        policy="prefix-lru",
        xi_tokens=None,
        q_hat_tokens=None,
        capacity_blocks=capacity,
        block_tokens=1,
        fidelity="order",
        prompt_tokens=np.array([100]),
        cached_tokens=np.array([hits]),
        recomputed=np.array([recomputed]),
        hit_age=NO_AGES,
        eviction_age=NO_AGES,
        seconds=0.0,
    )


def trace() -> Trace:
    """Two turns of a conversation: 2 and 3 blocks of 4 tokens, a second apart."""
    return Trace(
        name="two turns",
        block_tokens=4,
        arrival=np.array([0.0, 1.0]),
        prompt_tokens=np.array([8, 12]),
        output_tokens=np.array([1, 1]),
        starts=np.array([0, 2, 5]),
        contents=np.array([0, 1, 0, 1, 2], np.int32),
        known_tokens=np.array([8, 12]),
        parent=np.array([-1, 0, 1], np.int32),
        depth=np.array([0, 1, 2], np.int32),
        previous=np.array([-1, 0], np.int32),
        think=np.array([np.nan, np.nan]),
        tenant=np.zeros(2, np.int32),
        final=np.array([False, True]),
    )


def hinge(x: np.ndarray, at: float, before: float, after: float) -> np.ndarray:
    """Two straight lines that meet at x = at, with these slopes."""
    return np.where(x < at, before * (x - at), after * (x - at))


X = np.arange(0.0, 21.0)


@pytest.mark.parametrize("at", [3.0, 10.0, 16.0])
@pytest.mark.parametrize(
    ("before", "after", "shape"),
    [
        (-0.1, -2.0, Shape.HOLDS_UNTIL),
        (-2.0, -0.1, Shape.LEVELS_OFF),
        (2.0, 0.1, Shape.SATURATES),
        (0.1, 2.0, Shape.TAKES_OFF),
    ],
)
def test_where_two_lines_meet(at: float, before: float, after: float, shape: Shape) -> None:
    knee = find_knee(X, hinge(X, at, before, after))
    assert knee is not None
    assert (knee.x, knee.y, knee.shape) == (at, 0.0, shape)


def test_the_example_of_the_kneedle_paper() -> None:
    """Figure 2 of the paper: y = 5 - 1 / (x + 0.1), ten points: the knee is at 0.22."""
    x = np.linspace(0, 1, 10)
    knee = find_knee(x, 5 - 1 / (x + 0.1))
    assert knee is not None
    assert knee.x == pytest.approx(0.2222, abs=1e-3)
    assert knee.shape is Shape.SATURATES


def test_a_quarter_circle_bends_in_its_middle() -> None:
    x = np.linspace(0, 1, 1001)
    knee = find_knee(x, np.sqrt(1 - x**2))
    assert knee is not None
    assert knee.x == pytest.approx(np.sqrt(0.5), abs=1e-3)
    assert knee.distance == pytest.approx(np.sqrt(2) - 1, abs=1e-5)


def test_of_a_fall_between_two_levels_its_beginning_counts() -> None:
    y = np.interp(X, [0, 6, 9, 20], [0.8, 0.78, 0.2, 0.1])
    knee = find_knee(X, y)
    assert knee is not None
    assert (knee.x, knee.shape) == (6.0, Shape.HOLDS_UNTIL)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_units_do_not_matter(scale: float) -> None:
    knee = find_knee(X * scale, hinge(X, 7.0, -0.1, -2.0) / scale)
    assert knee is not None
    assert knee.x == 7.0 * scale


@pytest.mark.parametrize("y", [X, -X, np.ones(21), X + 0.3 * np.sin(X)])
def test_no_knee_where_nothing_bends(y: np.ndarray) -> None:
    assert find_knee(X, y) is None


def test_no_knee_of_two_points_and_none_of_a_curve_that_goes_back() -> None:
    assert find_knee([1, 2], [3, 1]) is None
    with pytest.raises(ValueError, match="ascend"):
        find_knee([1, 3, 2], [3, 2, 1])


def test_capacities_go_from_the_longest_request_to_all_there_is() -> None:
    sizes = capacities(trace(), points=5)
    assert (sizes[0], sizes[-1]) == (3, 6)
    assert sizes == sorted(set(sizes))


def test_a_capacity_curve_ends_where_nothing_is_lost() -> None:
    lost = {10: 5, 20: 2, 40: 0, 80: 0}
    curve = over_capacity(lost, lambda size: result(90 - lost[size], size, lost[size]))
    assert curve.x == (10.0, 20.0, 40.0)
    assert curve.hit_ratios.tolist() == [0.85, 0.88, 0.9]


def test_a_capacity_curve_bends_on_its_logarithmic_scale() -> None:
    sizes = [1000 * 2**step for step in range(9)]
    hits = [10, 20, 30, 40, 50, 51, 52, 53, 54]
    curve = Curve("capacity", tuple(map(float, sizes)), tuple(map(result, hits)))
    knee = curve.knee
    assert knee is not None
    assert (knee.x, knee.shape) == (16000, Shape.SATURATES)


def test_superposed_copies_have_contents_of_their_own() -> None:
    curve = over_load(loaded(trace(), [1, 3]), lambda t: result(100 // t.requests))
    assert curve.x == (1, 3)
    assert curve.hit_ratios.tolist() == [0.5, 0.16]
    (_, three) = next(iter(loaded(trace(), [3])))
    assert (three.requests, three.distinct) == (6, 9)


def test_sped_up_requests_are_the_same_ones_sooner() -> None:
    (_, fast) = next(iter(loaded(trace(), [2.5], "sped up")))
    assert fast.arrival.tolist() == [0.0, 0.4]
    assert fast.contents.tolist() == trace().contents.tolist()


def test_half_a_copy_is_refused_and_the_remedy_named() -> None:
    with pytest.raises(ValueError, match=r"load 1\.5: .* use 2"):
        list(loaded(trace(), [1.5]))
