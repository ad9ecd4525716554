"""Panels that more than one dashboard has, in its own words and by its own grouping."""

from __future__ import annotations

from collections.abc import Sequence

from evictune.observe.dialects import Measure

from dashboards import panels
from dashboards.panels import Query
from dashboards.query import measured


def kv_usage(description: str, legend: str) -> panels.Panel:
    """The share of KV blocks held, of each engine rank."""
    return panels.lines(
        "KV cache usage",
        description,
        Query(measured(Measure.KV_USAGE), legend),
        unit="percentunit",
        highest=1,
        runbook="evictune-capacity-bound",
    )


def preemptions(description: str, legend: str) -> panels.Panel:
    """Preemptions a second, of each engine rank."""
    return panels.lines(
        "Preemptions",
        description,
        Query(measured(Measure.PREEMPTIONS), legend),
        unit="suffix: /s",
        runbook="evictune-capacity-bound",
    )


def hit_ratio(description: str, by: Sequence[str], legend: str) -> panels.Panel:
    """The share of prompt tokens found in the cache. by: labels to keep."""
    hits, queries = measured(Measure.CACHE_HITS, by), measured(Measure.CACHE_QUERIES, by)
    return panels.lines(
        "Prefix cache hit ratio",
        description,
        Query(f"{hits} / {queries}", legend),
        unit="percentunit",
        highest=1,
    )
