"""Many engines, one reading: what a snapshot says of the target's ready pods.

Only pods that the API server shows as ready count: series of other pods (deleted ones linger in
Prometheus) are ignored, and a ready pod without a series makes the reading Unknown, not smaller.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

from evictune.api.observation import Idle, Interval, QuantileReading, Reading, Unknown, Value
from evictune.api.policy import TTFTObjective
from evictune.api.reasons import Reason
from evictune.observe.dialects import Engine, Measure, names_of
from evictune.observe.quantiles import cut_below, pool_buckets, read_quantile
from evictune.observe.snapshot import PodKey, RankKey, Snapshot

# Above this, a KV usage with nothing running or waiting cannot be true.
STALE_USAGE = 0.5
# Prometheus extrapolates increases; two of the same scrapes agree to rounding.
_RATIO_SLACK = 1e-6
_NAMED_PODS = 3

T = TypeVar("T")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Pooling:
    """A snapshot seen as the readings of one target. `source` is its name, for messages.

    everything: the snapshot, with pods of other targets too.
    """

    everything: Snapshot
    pods: Sequence[PodKey]
    engine: Engine
    source: str

    @cached_property
    def snapshot(self) -> Snapshot:
        """What it says of the target's ready pods."""
        return self.everything.of(self.pods)

    def ttft(self, objective: TTFTObjective) -> QuantileReading:
        """The quantile's interval in seconds, from buckets pooled over ranks and pods."""
        buckets = self._covered(Measure.TTFT, self.snapshot.buckets.get(Measure.TTFT, {}))
        if isinstance(buckets, Unknown):
            return buckets
        name = self._names(Measure.TTFT)
        for rank, counts in buckets.items():
            if not all(math.isfinite(count) for count in counts.values()):
                return Unknown(Reason.NOT_FINITE, f"{name} of {_text(rank)} is not finite")
        pooled = pool_buckets(buckets.values())
        reading = read_quantile(pooled, objective, cut=cut_below(buckets.values(), pooled))
        if isinstance(reading, Interval):
            # Not the whole window, where it was not observed for so long yet.
            seconds = max(self.snapshot.seconds.get(rank, objective.window) for rank in buckets)
            return replace(reading, seconds=seconds)
        return _unknown_or(reading, name)

    def kv_usage(self) -> Reading:
        """KV usage (0..1) of the hottest engine rank."""
        usages = self._values(Measure.KV_USAGE)
        if isinstance(usages, Unknown):
            return usages
        rank, usage = max(usages.items(), key=lambda item: item[1])
        return self.rank_usage(rank, usage)

    def rank_usage(self, rank: RankKey, usage: float) -> Reading:
        """KV usage of one engine rank, doubted where it is high and nothing runs or waits."""
        name = self._names(Measure.KV_USAGE)
        if not math.isfinite(usage):
            return Unknown(Reason.NOT_FINITE, f"{name} of {_text(rank)} is {usage}")
        if not 0 <= usage <= 1 + _RATIO_SLACK:
            return Unknown(Reason.OUT_OF_RANGE, f"{name} of {_text(rank)} is {usage:g}, not 0..1")
        load = [
            self.snapshot.values.get(measure, {}).get(rank)
            for measure in (Measure.RUNNING, Measure.WAITING)
        ]
        if usage > STALE_USAGE and load == [0.0, 0.0]:
            return Unknown(
                Reason.STALE_GAUGE,
                f"{name} of {_text(rank)} is {usage:g} although nothing runs or waits there",
            )
        return Value(min(usage, 1.0))

    def preemptions(self) -> Reading:
        """Preemptions per second of the engine rank that has most of them."""
        grown = self._values(Measure.PREEMPTIONS)
        if isinstance(grown, Unknown):
            return grown
        return Value(max(count / self.snapshot.seconds[rank] for rank, count in grown.items()))

    def total(self, measure: Measure) -> Reading:
        """A gauge, or a counter's increase, summed over all engine ranks."""
        values = self._values(measure)
        return values if isinstance(values, Unknown) else Value(sum(values.values()))

    def per_second(self, measure: Measure) -> Reading:
        """A counter's rate, summed over all engine ranks."""
        grown = self._values(measure)
        if isinstance(grown, Unknown):
            return grown
        return Value(sum(count / self.snapshot.seconds[rank] for rank, count in grown.items()))

    def quotient(self, dividend: Measure, divisor: Measure) -> Reading:
        """Increase of one counter for each of another, pooled first; Idle where neither grew."""
        above, below = self.total(dividend), self.total(divisor)
        if not isinstance(above, Value):
            return above
        if not isinstance(below, Value):
            return below
        return Value(above.value / below.value) if below.value > 0 else Idle()

    def hit_ratio(self) -> Reading:
        """Share (0..1) of queried prompt tokens found in the prefix cache over the window."""
        reading = self.quotient(Measure.CACHE_HITS, Measure.CACHE_QUERIES)
        if not isinstance(reading, Value) or reading.value <= 1:
            return reading
        if reading.value <= 1 + _RATIO_SLACK:
            return Value(1.0)
        message = (
            f"{self._names(Measure.CACHE_HITS)} grew {reading.value:g} times as much as "
            f"{self._names(Measure.CACHE_QUERIES)}: a hit ratio cannot exceed 1"
        )
        log.error("source %r: %s", self.source, message)
        return Unknown(Reason.OUT_OF_RANGE, message)

    def prefill_rate(self) -> Reading:
        """Prompt tokens computed per second of prefill; Idle where none was computed."""
        reading = self.quotient(Measure.PREFILL_TOKENS, Measure.PREFILL_SECONDS)
        return Idle() if reading == Value(0.0) else reading

    def metric_names(self) -> dict[str, str]:
        """The series in use for every measure, by what evictune calls it."""
        return {
            str(measure): self._names(measure)
            for measure, used in self.snapshot.names.items()
            if used
        }

    def ranks(self, pod: PodKey) -> Sequence[RankKey]:
        """The engine ranks of a pod that the source knows, in order."""
        return self.snapshot.ranks.get(pod, ())

    def _values(self, measure: Measure) -> Mapping[RankKey, float] | Unknown:
        """One finite, non-negative value for every rank of every ready pod, or why not."""
        values = self._covered(measure, self.snapshot.values.get(measure, {}))
        if isinstance(values, Unknown):
            return values
        for rank, value in values.items():
            if not math.isfinite(value) or value < 0:
                reason = Reason.OUT_OF_RANGE if math.isfinite(value) else Reason.NOT_FINITE
                return Unknown(reason, f"{self._names(measure)} of {_text(rank)} is {value:g}")
        return values

    def _covered(
        self, measure: Measure, found: Mapping[RankKey, T]
    ) -> Mapping[RankKey, T] | Unknown:
        """What was found, if it is there for every one of the ready pods."""
        if not names_of(measure, self.engine):
            return Unknown(Reason.NOT_MEASURABLE, f"{self.engine} exposes no series for {measure}")
        if measure in self.snapshot.faults:
            return self.snapshot.faults[measure]
        missing = sorted(set(self.pods) - {rank.pod for rank in found})
        return self._gap(measure, missing) if missing or not self.pods else found

    def _gap(self, measure: Measure, missing: Sequence[PodKey]) -> Unknown:
        """Why ready pods have no value, in words that name the series, the source and the pods."""
        faults = [
            self.snapshot.pod_faults[pod] for pod in missing if pod in self.snapshot.pod_faults
        ]
        complete = len(missing) == len(self.pods)
        if complete and faults:
            return faults[0]
        cause = f": {faults[0].message}" if faults else ""
        names = names_of(measure, self.engine)
        series = " or ".join(name.base for name in names)
        if not complete:
            return Unknown(
                Reason.INCOMPLETE_COVERAGE,
                f"source {self.source!r} has {series} of {len(self.pods) - len(missing)} of "
                f"{len(self.pods)} ready pods, not of {_pods(missing)}{cause}",
            )
        known = bool(self.snapshot.ranks)
        if known and all(name.lazy for name in names):
            return Unknown(
                Reason.WARMING_UP,
                f"{_pods(self.pods)} show no {series} yet: it comes with the first request",
            )
        if known and all(name.since or name.until for name in names):
            releases = "; ".join(f"{name.base}: {name.versions}" for name in names)
            return Unknown(
                Reason.NOT_MEASURABLE,
                f"source {self.source!r} has other series of {_pods(self.pods)}, but no {series}: "
                f"not every release of {self.engine} exposes it ({releases})",
            )
        return Unknown(
            Reason.NO_SERIES,
            f"source {self.source!r} has no {series} of {_pods(self.pods)}{self._others()}",
        )

    def _others(self) -> str:
        """What the source has instead: labels may be set wrongly."""
        if self.snapshot.ranks:
            return ""
        namespaces = {pod.namespace for pod in self.pods}
        others = sorted(pod for pod in self.everything.ranks if pod.namespace in namespaces)
        if others:
            return f"; it has series of {_pods(others)}"
        return f"; {self.snapshot.stray}" if self.snapshot.stray else ""

    def _names(self, measure: Measure) -> str:
        """The names in use by the ready pods' ranks; the preferred one where none is seen."""
        names = sorted(set(self.snapshot.names.get(measure, {}).values()))
        return ", ".join(names or [name.base for name in names_of(measure, self.engine)[:1]])


def _unknown_or(reading: QuantileReading, series: str) -> QuantileReading:
    """The reading, its message naming the series where it is Unknown."""
    if isinstance(reading, Unknown):
        return Unknown(reading.reason, f"{series}: {reading.message}")
    return reading


def _text(rank: RankKey) -> str:
    return f"pod {rank.pod.pod} engine {rank.rank}"


def _pods(pods: Sequence[PodKey]) -> str:
    """The first few pods by name."""
    names = ", ".join(f"{pod.namespace}/{pod.pod}" for pod in pods[:_NAMED_PODS])
    more = len(pods) - _NAMED_PODS
    return names + (f" and {more} more" if more > 0 else "")
