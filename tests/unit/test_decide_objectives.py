"""An objective is met or violated only when its whole interval clears it by the tolerance."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pytest
from evictune.api.observation import Idle, Interval, QuantileReading, Unknown, Value
from evictune.api.policy import TTFTObjective
from evictune.api.reasons import Reason
from evictune.decide.objectives import judge, judge_ttft

from tests.support.situations import make_policy, observe

OBJECTIVE = TTFTObjective(Decimal("0.99"), 1.0, 600.0, 300)


def _between(lower: float, upper: float) -> Interval:
    return Interval(lower, upper, lower, 1000.0)


@pytest.mark.parametrize(
    ("reading", "met", "reason"),
    [
        (_between(0.5, 0.9), True, Reason.SLO_MET),
        (_between(0.85, 0.95), None, Reason.SLO_UNCERTAIN),
        (_between(1.0, 1.05), None, Reason.SLO_UNCERTAIN),
        (_between(1.05, 1.3), None, Reason.SLO_UNCERTAIN),
        (_between(1.11, 1.3), False, Reason.SLO_VIOLATED),
        (_between(0.5, 2.5), None, Reason.BUCKET_TOO_COARSE),
        (_between(0.5, math.inf), None, Reason.BUCKET_TOO_COARSE),
        # Above the last bucket: "at least 10 s" is a violation, whatever it exactly is.
        (_between(10.0, math.inf), False, Reason.SLO_VIOLATED),
        (Idle(), None, Reason.IDLE),
        (Unknown(Reason.NO_SERIES, "no series"), None, Reason.NO_SERIES),
    ],
)
def test_ttft(reading: QuantileReading, met: bool | None, reason: Reason) -> None:
    judged = judge_ttft(OBJECTIVE, 0.1, reading)
    assert (judged.met, judged.reason) == (met, reason)
    assert judged.name == "TTFT p99"


def test_the_message_says_what_is_known_of_a_saturated_quantile() -> None:
    message = judge_ttft(OBJECTIVE, 0.1, _between(10.0, math.inf)).message
    assert message == "TTFT p99 at least 10s is above the threshold 1s"


@pytest.mark.parametrize(
    ("slo", "fields", "met"),
    [
        ({"maxPreemptionsPerSecond": "0.2"}, {"preemptions": Value(0.1)}, True),
        ({"maxPreemptionsPerSecond": "0.2"}, {"preemptions": Value(0.27)}, False),
        ({"maxKVCacheUsage": "0.92"}, {"kv_usage": Value(0.92)}, True),
        ({"maxKVCacheUsage": "0.92"}, {"kv_usage": Value(0.97)}, False),
        # An engine without such a counter: neither 0 a second nor met.
        (
            {"maxPreemptionsPerSecond": "0.2"},
            {"preemptions": Unknown(Reason.NOT_MEASURABLE, "no counter")},
            None,
        ),
    ],
)
def test_limits(slo: dict[str, Any], fields: dict[str, Any], met: bool | None) -> None:
    judged = judge(make_policy(slo=slo).spec, observe(**fields))
    assert [each.met for each in judged[1:]] == [met]


def test_what_is_not_asked_for_is_not_judged() -> None:
    assert len(judge(make_policy().spec, observe())) == 1
