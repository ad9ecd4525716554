"""A quantile from histogram buckets, as the interval that certainly holds it.

The quantile q of n observations is the ceil(q n)-th smallest (nearest rank). Buckets say which
two bounds it lies between and no more; the customary linear interpolation within the bucket is
given as an estimate, for people.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from evictune.api.observation import Idle, Interval, QuantileReading, Unknown
from evictune.api.policy import TTFTObjective
from evictune.api.reasons import Reason
from evictune.observe.snapshot import Buckets

# Sums of floats, and Prometheus's extrapolation, leave counts a hair off whole numbers.
_EPSILON = 1e-9


def pool_buckets(engines: Iterable[Buckets]) -> dict[float, float]:
    """Cumulative counts by upper bound, summed over engines.

    Engines may have different bounds, as in a rollout that changes them: only those that all
    have can be summed. Counts are made to rise with the bound, as they must.
    """
    engines = list(engines)
    common = set(engines[0]).intersection(*engines[1:]) if engines else set()
    pooled: dict[float, float] = {}
    highest = 0.0
    for bound in sorted(common):
        highest = max(highest, sum(buckets[bound] for buckets in engines))
        pooled[bound] = highest
    return pooled


def cut_below(engines: Iterable[Buckets], pooled: Mapping[float, float]) -> bool:
    """Whether pooling lost an engine's lowest bounds, so that its first bucket is not theirs."""
    first = min(pooled, default=math.inf)
    return any(min(buckets, default=math.inf) < first for buckets in engines)


def read_quantile(
    pooled: Mapping[float, float], objective: TTFTObjective, *, cut: bool = False
) -> QuantileReading:
    """The reading of the objective's quantile from cumulative counts over its window.

    cut: the first bucket is only the first that the engines have in common.
    """
    bounds = sorted(pooled)
    if len(bounds) < 2 or not math.isinf(bounds[-1]):
        return Unknown(
            Reason.BUCKET_TOO_COARSE,
            'the engines have no finite bucket bound in common, or no bucket le="+Inf"',
        )
    requests = pooled[bounds[-1]]
    if requests <= 0:
        return Idle()
    if requests < objective.min_requests:
        return Unknown(
            Reason.TOO_FEW_SAMPLES,
            f"{requests:.0f} requests within {objective.window:g} s; the quantile "
            f"{objective.quantile} needs {objective.min_requests} (slo.ttft.minRequests)",
        )
    if pooled[bounds[0]] >= requests and not cut:
        return Unknown(
            Reason.IMPLAUSIBLE,
            f"all {requests:.0f} requests fell into the first bucket (le={bounds[0]:g} s)",
        )
    return _interval(bounds, pooled, requests, objective)


def _interval(
    bounds: list[float], pooled: Mapping[float, float], requests: float, objective: TTFTObjective
) -> Interval:
    rank = float(objective.quantile) * requests
    index = next(i for i, bound in enumerate(bounds) if pooled[bound] >= rank * (1 - _EPSILON))
    upper = bounds[index]
    lower, below = (bounds[index - 1], pooled[bounds[index - 1]]) if index else (0.0, 0.0)
    fraction = (rank - below) / (pooled[upper] - below) if pooled[upper] > below else 1.0
    estimate = lower if math.isinf(upper) else lower + (upper - lower) * min(1.0, fraction)
    above_lower, above_upper = _share_above(bounds, pooled, requests, objective.threshold)
    return Interval(lower, upper, estimate, requests, above_lower, above_upper)


def _share_above(
    bounds: list[float], pooled: Mapping[float, float], requests: float, threshold: float
) -> tuple[float, float]:
    """Bounds (0..1) of the share of observations above the threshold."""
    at_least = max((pooled[bound] for bound in bounds if bound <= threshold), default=0.0)
    at_most = min(pooled[bound] for bound in bounds if bound >= threshold)
    return 1.0 - at_most / requests, 1.0 - at_least / requests
