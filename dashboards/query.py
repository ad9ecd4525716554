"""PromQL: series of the operator, and measures of the engines under every name that they have.

The engines' names come from the operator's own table (evictune.observe.dialects), joined and pooled
as the operator does it: where an engine rank has the preferred name, its others are left out; what
a second scrape job repeats counts once.
"""

from __future__ import annotations

from collections.abc import Sequence

from evictune.api.reasons import Kind as ReasonKind
from evictune.api.reasons import Reason
from evictune.observe.dialects import (
    MEANINGS,
    PART_LABELS,
    RANK_LABELS,
    Engine,
    Kind,
    Measure,
    Name,
    names_of,
)

POLICIES = 'namespace=~"$namespace",policy=~"$policy"'
"""Matchers of the operator's series, for the policies chosen."""
NAMESPACES = 'namespace=~"$namespace"'
PODS = 'namespace=~"$namespace",pod=~"$pod"'
"""Matchers of the engines' and the plugin's series, for the pods chosen."""
RATE = "$__rate_interval"
KEY = ("namespace", "policy")
RANK = ("namespace", "pod", *RANK_LABELS)
REGIMES = tuple(each for each in Reason if each.kind is ReasonKind.REGIME)


def own(series: str, matchers: str = NAMESPACES, by: Sequence[str] = KEY) -> str:
    """A series of the operator: the same whichever of its pods it was read from."""
    return f"max by ({', '.join(by)}) ({series}{{{matchers}}})"


def reading(name: str, matchers: str = POLICIES) -> str:
    """What the operator read, as decided upon."""
    return own("evictune_reading", f'{matchers},reading="{name}"')


def regime(matchers: str) -> str:
    """The regime as a number: its place in REGIMES, counted from 1."""
    numbered = (
        f'{number} * evictune_regime_info{{{matchers},regime="{each}"}}'
        for number, each in enumerate(REGIMES, start=1)
    )
    return f"max by ({', '.join(KEY)}) ({' or '.join(numbered)})"


def measured(measure: Measure, by: Sequence[str] = RANK, matchers: str = PODS) -> str:
    """A measure of the engines: a gauge as it is, a counter per second. by: labels to keep."""
    return _joined(names_of(measure), by, matchers)


def prompt_tokens(by: Sequence[str] = RANK, matchers: str = PODS) -> str:
    """Prompt tokens per second, cached or not. SGLang's stand among what its cache was asked."""
    names = (*names_of(Measure.PROMPT_TOKENS), *names_of(Measure.CACHE_QUERIES, Engine.SGLANG))
    return _joined(names, by, matchers)


def quantile(share: float, by: Sequence[str], matchers: str = PODS) -> str:
    """A quantile of the TTFT, interpolated within its bucket."""
    buckets = _joined(names_of(Measure.TTFT), ("le", *by), matchers)
    return f"histogram_quantile({share:g}, {buckets})"


def plugin_rate(series: str, by: Sequence[str], matchers: str = PODS) -> str:
    """A counter of the plugin per second."""
    labels = tuple(dict.fromkeys(("namespace", "pod", "engine", *by)))
    repeated = f"max by ({', '.join(labels)}) (rate({series}{{{matchers}}}[{RATE}]))"
    return f"sum by ({', '.join(by)}) ({repeated})" if by else f"sum({repeated})"


def _joined(names: Sequence[Name], by: Sequence[str], matchers: str) -> str:
    """The names of a measure, joined rank by rank and then summed (or the largest) by labels."""
    kind = MEANINGS[names[0].measure].kind
    labels = (*RANK, "le") if kind is Kind.BUCKETS else RANK
    alternatives = [_of_ranks(name, labels, matchers) for name in names]
    joined = f" or on ({', '.join(RANK)}) ".join(alternatives)
    if tuple(by) == RANK:
        return joined
    pool = "sum" if MEANINGS[names[0].measure].additive else "max"
    return f"{pool} by ({', '.join(by)}) ({joined})" if by else f"{pool}({joined})"


def _of_ranks(name: Name, labels: Sequence[str], matchers: str) -> str:
    """One name, of every engine rank: repetitions count once, parts are summed."""
    chosen = "".join(f',{label}="{value}"' for label, value in name.labels.items())
    selector = f'{{__name__=~"{"|".join(name.spellings)}",{matchers}{chosen}}}'
    meaning = MEANINGS[name.measure]
    if meaning.kind in (Kind.COUNTER, Kind.BUCKETS):
        selector = f"rate({selector}[{RATE}])"
    if not meaning.additive:
        return f"max by ({', '.join(labels)}) ({selector})"
    parts = f"max by ({', '.join((*labels, *PART_LABELS))}) ({selector})"
    return f"sum by ({', '.join(labels)}) ({parts})"
