"""The grid of xi, and which of it is tried next."""

from __future__ import annotations

import math
from typing import Any

import pytest
from evictune.api.decision import Quarantined
from evictune.api.knobs import KnobValues
from evictune.api.policy import TokenRange
from evictune.api.reasons import Reason
from evictune.decide.candidates import Search, choose, grid, start

GRID = grid(TokenRange(32, 4096), 32)


def test_the_grid_is_whole_blocks_about_a_root_of_two_apart() -> None:
    assert GRID == (32, 64, 96, 128, 192, 256, 352, 512, 736, 1024, 1440, 2048, 2912, 4096)


@pytest.mark.parametrize(
    ("bounds", "block", "values"),
    [
        (TokenRange(100, 300), 32, (128, 192, 256, 288)),
        (TokenRange(100, 110), 32, (110,)),
        (TokenRange(512, 512), 16, (512,)),
        (TokenRange(1, 64), 16, (16, 32, 48, 64)),
    ],
)
def test_the_grid_keeps_to_narrow_bounds(
    bounds: TokenRange, block: int, values: tuple[int, ...]
) -> None:
    assert grid(bounds, block) == values


@pytest.mark.parametrize(("reach", "xi"), [(823.0, 512), (404.0, 256), (10.0, 32), (1e9, 4096)])
def test_the_search_starts_one_step_below_what_can_be_prefilled(reach: float, xi: int) -> None:
    assert start(GRID, reach) == xi


def _tried(xi: int | None, ttft: float | None, *, too_small: bool = False, **more: Any) -> Any:
    reason = more.pop("reason", Reason.REUSE_LOST)
    return xi, Quarantined(KnobValues(xi), "", math.inf, reason, ttft, too_small)


def _choose(current: int | None, *tried: Any, **fields: Any) -> tuple[int | None, bool] | None:
    defaults: dict[str, Any] = {
        "grid": GRID,
        "overflowing": False,
        "reach": 823.0,
        "worthwhile": 1500.0,
        "estimate": 0.6,
        "tolerance": 0.1,
    }
    choice = choose(Search(current=current, tried=dict(tried), **{**defaults, **fields}))
    return None if choice is None else (choice.xi, choice.exhausted)


STOCK = _tried(None, 0.7)


def test_from_stock_lru_feedforward_says_where_to_begin() -> None:
    assert _choose(None) == (512, False)


def test_without_a_rate_of_prefill_there_is_no_beginning() -> None:
    assert _choose(None, reach=None) is None


def test_too_small_goes_up_within_what_can_meet_the_target_first() -> None:
    assert _choose(64, STOCK, overflowing=True) == (256, False)
    assert _choose(512, STOCK, overflowing=True) == (736, False)


def test_too_small_beyond_the_target_bisects_what_could_still_be_a_gain() -> None:
    assert _choose(736, STOCK, overflowing=True) == (1440, False)
    assert _choose(736, STOCK, overflowing=True, worthwhile=1100.0) == (1024, False)


def test_above_the_target_goes_down_one_step_or_to_the_start() -> None:
    assert _choose(256, STOCK) == (192, False)
    assert _choose(2048, STOCK) == (512, False)


def test_between_too_small_and_too_large_is_bisected() -> None:
    small = _tried(128, 0.7, too_small=True)
    assert _choose(1024, STOCK, small) == (352, False)
    assert _choose(512, STOCK, small) == (256, False)
    assert _choose(256, STOCK, small) == (192, False)


def test_nothing_between_is_the_end() -> None:
    small = _tried(736, 0.62, too_small=True)
    assert _choose(1024, STOCK, small, estimate=0.39) == (1024, True)


def test_a_smaller_value_that_gained_nothing_is_the_end() -> None:
    assert _choose(512, STOCK, _tried(352, 0.6), estimate=0.6) == (512, True)


def test_from_stock_lru_what_gained_nothing_is_halved_three_times_at_most() -> None:
    """A xi above every conversation's length protects nothing, as stock LRU."""
    assert _choose(None, _tried(512, 0.7)) == (256, False)
    assert _choose(None, _tried(512, 0.7), _tried(256, 0.7)) == (128, False)
    fruitless = (_tried(512, 0.7), _tried(256, 0.7), _tried(128, 0.7))
    assert _choose(None, *fruitless, estimate=0.7) == (None, True)


def test_at_the_end_the_best_that_was_measured_is_taken() -> None:
    tried = (_tried(512, 0.6, too_small=True), _tried(1024, 0.39))
    assert _choose(736, STOCK, *tried, overflowing=True) == (1024, True)


def test_at_the_end_a_difference_within_tolerance_moves_nothing() -> None:
    tried = (_tried(512, 0.6, too_small=True), _tried(1024, 0.56))
    assert _choose(736, STOCK, *tried, overflowing=True) == (736, True)


def test_what_came_without_a_gain_gives_way_to_stock_lru() -> None:
    end: dict[str, Any] = {"overflowing": True, "worthwhile": 700.0, "estimate": 0.68}
    assert _choose(736, STOCK, proven=False, **end) == (None, True)
    assert _choose(736, STOCK, proven=True, **end) == (736, True)


def test_what_is_seen_now_beats_memory() -> None:
    """Traffic grew: 736, known to fit, may no longer do so; and 1024 fits, whatever was said."""
    assert _choose(512, STOCK, _tried(352, 0.4), overflowing=True) == (736, False)
    assert _choose(512, STOCK, _tried(736, 0.5, too_small=True)) == (352, False)


def test_an_abandoned_value_says_nothing_but_is_not_tried_again() -> None:
    given_up = _tried(736, None, reason=Reason.ABANDONED)
    assert _choose(512, STOCK, given_up, overflowing=True, worthwhile=1100.0) == (1024, False)


def test_every_candidate_is_offered_at_most_once() -> None:
    """A region that overflows at every xi: the search ends, after few steps."""
    current, tried, steps = 32, [STOCK], []
    while True:
        chosen = _choose(current, *tried, overflowing=True, worthwhile=math.inf)
        assert chosen is not None
        xi, exhausted = chosen
        if exhausted:
            break
        tried.append(_tried(current, 0.6, too_small=True))
        assert xi is not None
        current = xi
        steps.append(xi)
    assert len(steps) == len(set(steps)) <= 7
