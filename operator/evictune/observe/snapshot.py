"""What a metrics source saw, in one shape for every source.

Values are keyed by engine rank; joining them to the pods that the API server knows, and pooling,
is done in `pool`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple, TypeVar

from evictune.api.observation import Unknown
from evictune.observe.dialects import Measure

Buckets = Mapping[float, float]

T = TypeVar("T")


# Tuples: every look at a fleet hashes them by the hundred thousand.
class PodKey(NamedTuple):
    """A pod, as the API server and the metrics labels `namespace` and `pod` name it."""

    namespace: str
    pod: str


class RankKey(NamedTuple):
    """One engine rank of a pod. `rank` is the label `engine`, "0" where there is none."""

    pod: PodKey
    rank: str


@dataclass(frozen=True)
class Snapshot:
    """One look at a source.

    values: gauges now, and counters' increases over the window; may hold NaN as it was read.
    buckets: increase of every cumulative bucket over the window, by its upper bound.
    seconds: how long a time the increases of a rank cover.
    infos: labels of vllm:cache_config_info. names: the name in use, by measure and rank.
    faults: measures that could not be read at all. pod_faults: pods that could not.
    stray: in words, which engines' series the source has that belong to no pod; empty if none.
    """

    values: Mapping[Measure, Mapping[RankKey, float]]
    buckets: Mapping[Measure, Mapping[RankKey, Buckets]]
    seconds: Mapping[RankKey, float]
    infos: Mapping[RankKey, Mapping[str, str]] = field(default_factory=dict)
    names: Mapping[Measure, Mapping[RankKey, str]] = field(default_factory=dict)
    faults: Mapping[Measure, Unknown] = field(default_factory=dict)
    pod_faults: Mapping[PodKey, Unknown] = field(default_factory=dict)
    stray: str = ""

    @cached_property
    def ranks(self) -> Mapping[PodKey, Sequence[RankKey]]:
        """The engine ranks of every pod of which there is any series, in order."""
        known = set(self.infos)
        known.update(*self.values.values(), *self.buckets.values())
        ranks: dict[PodKey, list[RankKey]] = {}
        for rank in sorted(known):
            ranks.setdefault(rank.pod, []).append(rank)
        return ranks

    def of(self, pods: Iterable[PodKey]) -> Snapshot:
        """What it says of some pods. Costs as much as they have series, however many others do."""
        kept = [rank for pod in pods for rank in self.ranks.get(pod, ())]
        return replace(
            self,
            values={measure: _of(found, kept) for measure, found in self.values.items()},
            buckets={measure: _of(found, kept) for measure, found in self.buckets.items()},
            seconds=_of(self.seconds, kept),
            infos=_of(self.infos, kept),
            names={measure: _of(found, kept) for measure, found in self.names.items()},
        )


def _of(found: Mapping[RankKey, T], ranks: Iterable[RankKey]) -> dict[RankKey, T]:
    return {rank: found[rank] for rank in ranks if rank in found}


class SourceError(Exception):
    """A source gave no snapshot at all. `unknown` is what every reading then is."""

    def __init__(self, unknown: Unknown) -> None:
        super().__init__(unknown.message)
        self.unknown = unknown
