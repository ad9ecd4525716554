"""One PromQL query for a measure: every engine rank of some namespaces, whatever its engine.

Series of a rank that differ in other labels are one thing seen twice (a second scrape job, a second
replica of the store, tensor-parallel ranks that repeat it): the largest counts, none is summed. The
labels by which an engine divides its own numbers (PART_LABELS) are the exception: their parts are.
Several names of a measure are joined by `or`: where a rank has the preferred one, the others of it
are left out, so that names are never summed. The name in use comes back as the label `series`.

An increase counts only while its series is still there: what is left of a pod that was replaced
under its own name, of buckets that a rollout changed, or of an engine that is no longer scraped
would else stay in the window for as long as the window is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from evictune.api.sources import PodLabels
from evictune.observe.dialects import (
    INFO_LABELS,
    MEANINGS,
    PART_LABELS,
    RANK_LABELS,
    Kind,
    Measure,
    Name,
    names_of,
)

SERIES_LABEL = "series"
# What Prometheus calls a target's own label that clashes with one of the scrape job's.
EXPORTED = "exported_"
# Longer lists of namespaces are left out: with one, six times in a query, a request's line would
# exceed the 8 KiB that servers and gateways take. Only the pods asked about are looked at.
_LONGEST = 512


def query(
    measure: Measure, namespaces: Iterable[str], window: float, labels: PodLabels | None = None
) -> str:
    """The query for a measure over `window` seconds."""
    labels = labels or PodLabels()
    wanted = _any_of(namespaces)
    alternatives = [_named(name, wanted, window, labels) for name in names_of(measure)]
    return f" or on ({', '.join(_rank(labels))}) ".join(alternatives)


def stray_query(namespaces: Iterable[str], labels: PodLabels) -> str:
    """Engines' series that belong to no pod, or whose own namespace label was pushed aside."""
    names = "|".join(each for name in names_of(Measure.RUNNING) for each in name.spellings)
    selections = (
        f'{labels.namespace}=""',
        f'{labels.pod}=""',
        f'{EXPORTED}{labels.namespace}=~"{_any_of(namespaces)}"',
    )
    chosen = _chosen(labels.matchers)
    return " or ".join(f'topk(1, {{__name__=~"{names}",{each}{chosen}}})' for each in selections)


def _chosen(labels: Mapping[str, str]) -> str:
    # PromQL's strings know the escapes of JSON.
    return "".join(f",{name}={json.dumps(value)}" for name, value in labels.items())


def _any_of(namespaces: Iterable[str]) -> str:
    # Names of namespaces are DNS labels: nothing in them means anything to a regular expression.
    text = "|".join(sorted(namespaces))
    return text if len(text) <= _LONGEST else ".+"


def _rank(labels: PodLabels) -> tuple[str, ...]:
    return (labels.namespace, labels.pod, *RANK_LABELS)


def _named(name: Name, namespaces: str, window: float, labels: PodLabels) -> str:
    chosen = _chosen(name.labels) + _chosen(labels.matchers)
    spellings = "|".join(name.spellings)
    selector = f'{{__name__=~"{spellings}",{labels.namespace}=~"{namespaces}"{chosen}}}'
    increase = f"increase({selector}[{round(window * 1000)}ms]) and {selector}"
    rank, meaning = _rank(labels), MEANINGS[name.measure]
    match meaning.kind:
        case Kind.GAUGE if not meaning.additive:
            vector = _largest(rank, selector)
        case Kind.GAUGE:
            vector = _sum_of_parts(rank, selector)
        case Kind.INFO:
            vector = _largest((*rank, *INFO_LABELS), selector)
        case Kind.COUNTER:
            vector = _sum_of_parts(rank, increase)
        case Kind.BUCKETS:
            vector = _sum_of_parts((*rank, "le"), increase)
    return f'label_replace({vector}, "{SERIES_LABEL}", "{name.base}", "", "")'


def _largest(labels: tuple[str, ...], vector: str) -> str:
    return f"max by ({', '.join(labels)}) ({vector})"


def _sum_of_parts(labels: tuple[str, ...], vector: str) -> str:
    return f"sum by ({', '.join(labels)}) ({_largest((*labels, *PART_LABELS), vector)})"
