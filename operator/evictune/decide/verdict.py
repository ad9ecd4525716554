"""Did a change help? Readings after it are compared with those before it.

Fewest violations come first: the share of requests above the threshold decides where it differs by
more than the tolerance and more than chance. Else the quantile decides, unless both lie in the same
histogram bucket: then nothing can be told.
"""

from __future__ import annotations

import math
from enum import Enum

from evictune.api.decision import Baseline
from evictune.api.observation import Interval

# Two shares differ by more than chance from this many standard errors on (two-proportion z-test).
SIGNIFICANT = 2.0


class Outcome(Enum):
    """Of a change."""

    HELPED = "helped"
    SAME = "made no difference"
    WORSE = "made it worse"


def compare(baseline: Baseline, now: Interval, met: bool, tolerance: float) -> Outcome:
    """The outcome. `met`: whether the objective is met now. Times in seconds."""
    if met:
        return Outcome.HELPED
    by_share = _by_share(baseline, now, tolerance)
    return _by_quantile(baseline, now, tolerance) if by_share is Outcome.SAME else by_share


def _by_share(baseline: Baseline, now: Interval, tolerance: float) -> Outcome:
    before, requests = baseline.share_above, baseline.requests
    if before is None or not requests or not now.requests:
        return Outcome.SAME
    after = now.share_above
    pooled = (before * requests + after * now.requests) / (requests + now.requests)
    error = math.sqrt(pooled * (1 - pooled) * (1 / requests + 1 / now.requests))
    if abs(after - before) <= max(SIGNIFICANT * error, tolerance * before):
        return Outcome.SAME
    return Outcome.HELPED if after < before else Outcome.WORSE


def _by_quantile(baseline: Baseline, now: Interval, tolerance: float) -> Outcome:
    lower, upper, before = baseline.ttft_lower, baseline.ttft_upper, baseline.ttft_estimate
    if lower is None or upper is None or before is None or (lower, upper) == (now.lower, now.upper):
        return Outcome.SAME
    if math.isinf(upper) or math.isinf(now.upper):
        # Above the last bucket: only which side of its bound it lies on is known.
        return Outcome.HELPED if math.isinf(upper) else Outcome.WORSE
    if now.estimate < before * (1 - tolerance):
        return Outcome.HELPED
    return Outcome.WORSE if now.estimate > before * (1 + tolerance) else Outcome.SAME
