"""Variables: which values are chosen, and queries with them put in, as Grafana does it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from evictune.preview.boards import Board
from evictune.preview.store import Range, Store

_VARIABLE = re.compile(r"\$(?:\{(\w+)(?::\w+)?\}|(\w+))")
# https://grafana.com/docs/grafana/latest/datasources/prometheus/template-variables/#use-__rate_interval
_SCRAPES = 4


class MissingValueError(Exception):
    """What was chosen is not in the store."""

    def __init__(self, variable: str, value: str, known: Sequence[str]) -> None:
        super().__init__(variable, value, known)
        self.variable, self.value, self.known = variable, value, known


def choose(
    board: Board, wanted: Mapping[str, str], store: Store, span: Range, scrape: float
) -> dict[str, str]:
    """The value of each variable, as it stands in a regular expression.

    wanted: values by variable; what is not wanted is All, or the first there is. scrape: seconds.
    Raises MissingValueError, and what the store raises.
    """
    values = builtin(span.step, scrape)
    for variable in board.variables:
        known = store.label_values(replaced(variable.series, values), variable.label, span)
        value = wanted.get(variable.name)
        if value is not None and value not in known:
            raise MissingValueError(variable.name, value, known)
        if value is None and variable.all_value:
            values[variable.name] = variable.all_value
        else:
            # Without any value nothing matches; the panels are empty, and say so.
            values[variable.name] = re.escape(value or next(iter(known), "-"))
    return values


def builtin(step: float, scrape: float) -> dict[str, str]:
    """Grafana's own variables, for a step and a scrape interval in seconds."""
    rate = max(step + scrape, _SCRAPES * scrape)
    return {"__rate_interval": f"{round(rate * 1000)}ms", "__interval": f"{round(step * 1000)}ms"}


def replaced(text: str, values: Mapping[str, str]) -> str:
    """The text with values in place of variables; what is none of them stays, such as $1."""

    def value(match: re.Match[str]) -> str:
        found = values.get(match[1] or match[2])
        # Within PromQL's quotes a backslash stands for two.
        return match[0] if found is None else found.replace("\\", "\\\\")

    return _VARIABLE.sub(value, text)
