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
    part_of,
    rank_of,
)
from evictune.observe.exposition import ExpositionError, Sample

# A measure of a rank; of a bucket, also its upper bound.
Gauge = tuple[Measure, str]
Counter = tuple[Measure, str, float | None]
# The largest value of every part of a rank's measure.
_Parts = dict[tuple[str, float | None], dict[tuple[str, ...], float]]


@dataclass
class EnginePage:
    """What one page says, by engine rank ("0" where the engine tells none apart)."""

    gauges: dict[Gauge, float] = field(default_factory=dict)
    counters: dict[Counter, float] = field(default_factory=dict)
    infos: dict[str, Mapping[str, str]] = field(default_factory=dict)
    names: dict[Gauge, str] = field(default_factory=dict)


def sample_names(engine: Engine) -> frozenset[str]:
    """The sample names that matter of this engine's page."""
    return frozenset(each for name in NAMES if name.engine is engine for each in name.spellings)


def read_engine_page(samples: Iterable[Sample], engine: Engine) -> EnginePage:
    """The page's measures. Of a measure's names the first in the table that a rank has wins.

    Parts of a rank's measure (PART_LABELS) are summed. Series that differ in other labels repeat
    each other, as tensor-parallel ranks do in SGLang: the largest counts. Raises ExpositionError
    for a bucket without its bound.
    """
    by_name: dict[str, list[Sample]] = {}
    for sample in samples:
        by_name.setdefault(sample.name, []).append(sample)
    page = EnginePage()
    for name in NAMES:
        if name.engine is engine:
            samples = [each for spelling in name.spellings for each in by_name.get(spelling, ())]
            _enter(page, name, [each for each in samples if _counts(name, each)])
    return page


def largest(values: Iterable[float]) -> float:
    """Of values that repeat each other; NaN where one of them is: it hides what another says."""
    values = list(values)
    return math.nan if any(math.isnan(value) for value in values) else max(values)


def _counts(name: Name, sample: Sample) -> bool:
    return all(sample.labels.get(label, "") == value for label, value in name.labels.items())


def _enter(page: EnginePage, name: Name, samples: Iterable[Sample]) -> None:
    meaning = MEANINGS[name.measure]
    parts: _Parts = {}
    for sample in samples:
        rank = rank_of(sample.labels)
        if page.names.setdefault((name.measure, rank), name.base) != name.base:
            continue  # A preferred name of this measure is there: names are never summed.
        if meaning.kind is Kind.INFO:
            page.infos[rank] = {k: v for k, v in sample.labels.items() if k in INFO_LABELS}
            continue
        bound = _bound(sample) if meaning.kind is Kind.BUCKETS else None
        of = parts.setdefault((rank, bound), {})
        part = part_of(sample.labels)
        of[part] = largest((of.get(part, sample.value), sample.value))
    for (rank, bound), of in parts.items():
        value = sum(of.values()) if meaning.additive else largest(of.values())
        if meaning.kind is Kind.GAUGE:
            page.gauges[name.measure, rank] = value
        else:
            page.counters[name.measure, rank, bound] = value


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
