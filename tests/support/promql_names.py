"""Which metrics a PromQL expression reads, and which ones exist."""

from __future__ import annotations

import re

import promql_parser
from evictune.observe.dialects import MEANINGS, NAMES, Kind
from evictune.operator_metrics import OperatorMetrics
from evictune_policies.engine.metrics import Report, families
from prometheus_client import Metric

_NAME = "__name__"
_LITERAL = re.compile(r"[a-zA-Z_:][\w:]*")
_REPORT = Report("0", "lru", None, None, 0)
# What the names of a family's samples end in, by the type that Prometheus shows.
_SUFFIXES = {
    "counter": ("_total",),
    "histogram": ("_bucket", "_sum", "_count"),
    "summary": ("_sum", "_count"),
}


def names_in(expression: str) -> set[str]:
    """The names that its selectors name. Raises ValueError for what is no PromQL.

    A pattern may list names: `a|b`. A selector without a name, or with another pattern for one, is
    a ValueError too: what it reads cannot be told.
    """
    found: set[str] = set()

    def visit(node: promql_parser.Expr) -> None:
        if isinstance(node, promql_parser.MatrixSelector):
            node = node.vector_selector
        if isinstance(node, promql_parser.VectorSelector):
            found.update({node.name} if node.name else _matched(node))

    promql_parser.walk(promql_parser.parse(expression), visit)
    return found


def _matched(selector: promql_parser.VectorSelector) -> set[str]:
    for each in selector.matchers.matchers:
        if each.name == _NAME and each.op == promql_parser.MatchOp.Equal:
            return {each.value}
        if each.name == _NAME and each.op == promql_parser.MatchOp.Re:
            names = set(each.value.split("|"))
            if all(_LITERAL.fullmatch(name) for name in names):
                return names
    raise ValueError(f"{selector.prettify()}: which metric is meant?")


def exported() -> set[str]:
    """Every sample's name that the operator, the plugin or a known engine shows."""
    return _of_operator() | _of_plugin() | _of_engines()


def _of_operator() -> set[str]:
    return {name for family, _ in OperatorMetrics().families() for name in _samples(family)}


def _of_plugin() -> set[str]:
    return {name for family in families([_REPORT]) for name in _samples(family)}


def _samples(family: Metric) -> set[str]:
    return {f"{family.name}{suffix}" for suffix in _SUFFIXES.get(family.type, ("",))}


def _of_engines() -> set[str]:
    """As they are, and as pipelines spell them."""
    found = {spelling for name in NAMES for spelling in name.spellings}
    for name in NAMES:
        if MEANINGS[name.measure].kind is Kind.BUCKETS:
            found |= {f"{name.base}{suffix}" for suffix in _SUFFIXES["histogram"]}
    return found
