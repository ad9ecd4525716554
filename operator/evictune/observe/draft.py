"""A snapshot while it is being put together."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

from evictune.api.observation import Unknown
from evictune.observe.dialects import Measure
from evictune.observe.engine_page import largest
from evictune.observe.snapshot import PodKey, RankKey, Snapshot

# Two scrapers of one engine agree but for the moments of their scrapes.
_SAME_SHARE = 0.05
_SAME_COUNT = 2.0


@dataclass
class Draft:
    """The fields of a Snapshot, open for additions."""

    values: dict[Measure, dict[RankKey, float]] = field(default_factory=dict)
    buckets: dict[Measure, dict[RankKey, dict[float, float]]] = field(default_factory=dict)
    seconds: dict[RankKey, float] = field(default_factory=dict)
    infos: dict[RankKey, Mapping[str, str]] = field(default_factory=dict)
    names: dict[Measure, dict[RankKey, str]] = field(default_factory=dict)
    faults: dict[Measure, Unknown] = field(default_factory=dict)
    pod_faults: dict[PodKey, Unknown] = field(default_factory=dict)
    stray: str = ""
    doubtful: set[tuple[Measure, RankKey, float]] = field(default_factory=set)
    _ranks: dict[tuple[str, str, str], RankKey] = field(default_factory=dict)

    def rank(self, namespace: str, pod: str, rank: str) -> RankKey:
        """The key of a rank, one object for all of its series: a fleet has hundred thousands."""
        names = (namespace, pod, rank)
        key = self._ranks.get(names)
        if key is None:
            key = self._ranks[names] = RankKey(PodKey(namespace, pod), rank)
        return key

    def add_value(self, measure: Measure, key: RankKey, value: float) -> None:
        """A gauge, or a counter's increase. Of values that repeat each other the largest stays."""
        of = self.values.setdefault(measure, {})
        of[key] = largest((of[key], value)) if key in of else value

    def add_bucket(self, measure: Measure, key: RankKey, bound: float, grown: float) -> None:
        """The increase of a cumulative bucket.

        A bound may come twice, as "1" and "1.0": Prometheus 3 spells it anew, and each is then of a
        part of the window. A bound whose two counts differ is left out: the buckets beside it are
        merged, which is coarser and true.
        """
        of = self.buckets.setdefault(measure, {}).setdefault(key, {})
        if bound not in of:
            of[bound] = grown
            return
        other = of[bound]
        of[bound] = largest((other, grown))
        differ = abs(other - grown) > max(_SAME_COUNT, _SAME_SHARE * other)
        if differ and math.isfinite(bound):
            self.doubtful.add((measure, key, bound))

    def add_name(self, measure: Measure, key: RankKey, name: str) -> None:
        """The name by which a rank exposes a measure."""
        self.names.setdefault(measure, {})[key] = sys.intern(name)

    def done(self) -> Snapshot:
        """The snapshot."""
        for measure, key, bound in self.doubtful:
            self.buckets[measure][key].pop(bound, None)
        return Snapshot(
            values=self.values,
            buckets=self.buckets,
            seconds=self.seconds,
            infos=self.infos,
            names=self.names,
            faults=self.faults,
            pod_faults=self.pod_faults,
            stray=self.stray,
        )
