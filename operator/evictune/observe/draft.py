"""A snapshot while it is being put together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from evictune.api.observation import Unknown
from evictune.observe.dialects import Measure
from evictune.observe.snapshot import PodKey, RankKey, Snapshot


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

    def add_value(self, measure: Measure, key: RankKey, value: float) -> None:
        """A gauge, or a counter's increase."""
        self.values.setdefault(measure, {})[key] = value

    def add_bucket(self, measure: Measure, key: RankKey, bound: float, grown: float) -> None:
        """The increase of a cumulative bucket."""
        self.buckets.setdefault(measure, {}).setdefault(key, {})[bound] = grown

    def add_name(self, measure: Measure, key: RankKey, name: str) -> None:
        """The name by which a rank exposes a measure."""
        self.names.setdefault(measure, {})[key] = name

    def done(self) -> Snapshot:
        """The snapshot."""
        return Snapshot(
            values=self.values,
            buckets=self.buckets,
            seconds=self.seconds,
            infos=self.infos,
            names=self.names,
            faults=self.faults,
            pod_faults=self.pod_faults,
        )
