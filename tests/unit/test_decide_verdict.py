"""Did a change help? Fewest violations first, then the quantile, and nothing from noise."""

from __future__ import annotations

import math

import pytest
from evictune.api.decision import Baseline
from evictune.api.observation import Interval
from evictune.decide.verdict import Outcome, compare

from tests.support.situations import BASELINE, ttft


@pytest.mark.parametrize(
    ("now", "outcome"),
    [
        (ttft(0.4), Outcome.HELPED),
        (ttft(0.55), Outcome.SAME),
        (ttft(0.65), Outcome.SAME),
        (ttft(0.7), Outcome.WORSE),
        # Fewer requests above the threshold beat a longer tail, and the other way round.
        (ttft(0.7, above=0.01), Outcome.HELPED),
        (ttft(0.4, above=0.12), Outcome.WORSE),
        # 7 % instead of 5 % of 400 requests is within what chance does.
        (ttft(0.6, above=0.07), Outcome.SAME),
    ],
)
def test_compared_with_the_baseline(now: Interval, outcome: Outcome) -> None:
    assert compare(BASELINE, now, False, 0.1) is outcome


def test_an_objective_that_is_met_has_helped() -> None:
    assert compare(BASELINE, ttft(0.6), True, 0.1) is Outcome.HELPED


def test_the_same_bucket_tells_nothing() -> None:
    before = Baseline(0.5, 1.0, 0.95, 0.05, None, 400.0)
    assert compare(before, Interval(0.5, 1.0, 0.55, 400.0, 0.05, 0.05), False, 0.1) is Outcome.SAME


def test_above_the_last_bucket_the_share_decides() -> None:
    """ "Improved by 0 %, roll back" would be wrong while the quantile is pinned to the edge."""
    before = Baseline(10.0, math.inf, 10.0, 0.40, None, 400.0)
    pinned = Interval(10.0, math.inf, 10.0, 400.0, 0.20, 0.20)
    assert compare(before, pinned, False, 0.1) is Outcome.HELPED
    same = Interval(10.0, math.inf, 10.0, 400.0, 0.40, 0.40)
    assert compare(before, same, False, 0.1) is Outcome.SAME
    out = Interval(5.0, 10.0, 7.0, 400.0, 0.40, 0.40)
    assert compare(before, out, False, 0.1) is Outcome.HELPED


def test_nothing_is_judged_against_readings_that_were_not_there() -> None:
    unknown = Baseline(None, None, None, None, None)
    assert compare(unknown, ttft(0.6), False, 0.1) is Outcome.SAME
