"""An engine's /metrics page in evictune's terms: measures of ranks instead of names and labels."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from evictune.observe.dialects import (
    INFO_LABELS,
    MEANINGS,
    NAMES,
    Engine,
    Kind,
    Measure,
    Name,
    rank_of,
)
from evictune.observe.exposition import ExpositionError, Sample

# A measure of a rank; of a bucket, also its upper bound.
Gauge = tuple[Measure, str]
Counter = tuple[Measure, str, float | None]


@dataclass
class EnginePage:
    """What one page says, by engine rank ("0" where the engine tells none apart)."""

    gauges: dict[Gauge, float] = field(default_factory=dict)
    counters: dict[Counter, float] = field(default_factory=dict)
    infos: dict[str, Mapping[str, str]] = field(default_factory=dict)
    names: dict[Gauge, str] = field(default_factory=dict)


def sample_names(engine: Engine) -> frozenset[str]:
    """The sample names that matter of this engine's page."""
    return frozenset(name.sample for name in NAMES if name.engine is engine)


def read_engine_page(samples: Iterable[Sample], engine: Engine) -> EnginePage:
    """The page's measures. Of a measure's names the first in the table that a rank has wins.

    Series of a rank that differ in other labels repeat each other (tensor-parallel ranks do so in
    SGLang): the largest counts. Raises ExpositionError for a bucket without its bound.
    """
    by_name: dict[str, list[Sample]] = {}
    for sample in samples:
        by_name.setdefault(sample.name, []).append(sample)
    page = EnginePage()
    for name in NAMES:
        if name.engine is engine:
            for sample in by_name.get(name.sample, ()):
                _enter(page, name, sample)
    return page


def _enter(page: EnginePage, name: Name, sample: Sample) -> None:
    rank = rank_of(sample.labels)
    if any(sample.labels.get(label) != value for label, value in name.labels.items()):
        return
    if page.names.setdefault((name.measure, rank), name.base) != name.base:
        return  # A preferred name of this measure is there: names are never summed.
    match MEANINGS[name.measure].kind:
        case Kind.GAUGE:
            gauge = (name.measure, rank)
            page.gauges[gauge] = max(page.gauges.get(gauge, sample.value), sample.value)
        case Kind.COUNTER | Kind.BUCKETS as kind:
            bound = _bound(sample) if kind is Kind.BUCKETS else None
            counter = (name.measure, rank, bound)
            page.counters[counter] = max(page.counters.get(counter, sample.value), sample.value)
        case Kind.INFO:
            page.infos[rank] = {k: v for k, v in sample.labels.items() if k in INFO_LABELS}


def _bound(sample: Sample) -> float:
    """A bucket's upper bound; it may be infinite."""
    text = sample.labels.get("le", "")
    try:
        bound = float(text)
    except ValueError:
        bound = math.nan
    if math.isnan(bound):
        raise ExpositionError(f"{sample.name} has a bucket whose bound le={text!r} is no number")
    return bound
