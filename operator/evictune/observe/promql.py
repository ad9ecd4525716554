"""One PromQL query for a measure: every engine rank of some namespaces, whatever its engine.

Series of a rank that differ in other labels are one thing seen twice (a second scrape job, a second
replica of the store, tensor-parallel ranks that repeat it): the largest counts, none is summed.
Several names of a measure are joined by `or`: where a rank has the preferred one, the others of it
are left out, so that names are never summed. The name in use comes back as the label `series`.
"""

from __future__ import annotations

from collections.abc import Iterable

from evictune.observe.dialects import (
    INFO_LABELS,
    MEANINGS,
    RANK_LABELS,
    Kind,
    Measure,
    Name,
    names_of,
)

SERIES_LABEL = "series"
_RANK = ("namespace", "pod", *RANK_LABELS)


def query(measure: Measure, namespaces: Iterable[str], window: float) -> str:
    """The query for a measure over `window` seconds."""
    # Names of namespaces are DNS labels: nothing in them means anything to a regular expression.
    wanted = "|".join(sorted(namespaces))
    alternatives = [_named(name, wanted, window) for name in names_of(measure)]
    return f" or on ({', '.join(_RANK)}) ".join(alternatives)


def _named(name: Name, namespaces: str, window: float) -> str:
    labels = "".join(f',{key}="{value}"' for key, value in name.labels.items())
    selector = f'{name.sample}{{namespace=~"{namespaces}"{labels}}}'
    milliseconds = round(window * 1000)
    match MEANINGS[name.measure].kind:
        case Kind.GAUGE:
            vector = f"max by ({', '.join(_RANK)}) ({selector})"
        case Kind.INFO:
            vector = f"max by ({', '.join((*_RANK, *INFO_LABELS))}) ({selector})"
        case Kind.COUNTER:
            vector = f"max by ({', '.join(_RANK)}) (increase({selector}[{milliseconds}ms]))"
        case Kind.BUCKETS:
            grouping = ", ".join((*_RANK, "le"))
            vector = f"max by ({grouping}) (increase({selector}[{milliseconds}ms]))"
    return f'label_replace({vector}, "{SERIES_LABEL}", "{name.base}", "", "")'
