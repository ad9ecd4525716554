"""What the store answers to a dashboard's queries."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field

from evictune.preview.boards import Board, Panel, Target
from evictune.preview.chosen import choose, replaced
from evictune.preview.store import QueryError, Range, Series, Store

_AT_ONCE = 4
_LABEL = re.compile(r"\{\{\s*(\w+)\s*\}\}")


@dataclass(frozen=True)
class Line:
    """A series by its name, as the panel's legend has it."""

    name: str
    series: Series
    ref: str


@dataclass
class Filled:
    """A panel with its series, or with what the store said against its queries."""

    panel: Panel
    lines: list[Line] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        """Whether there is nothing to draw."""
        return not any(line.series.samples for line in self.lines)


@dataclass(frozen=True)
class Mark:
    """A time, seconds since the epoch, and what happened then."""

    time: float
    text: str


@dataclass
class FilledBoard:
    """A dashboard with its data, and the values of its variables."""

    board: Board
    span: Range
    values: Mapping[str, str]
    panels: list[Filled]
    marks: list[Mark]


def fill(
    boards: Sequence[Board],
    store: Store,
    span: Range,
    scrape: float,
    wanted: Mapping[str, str],
    told: Callable[[int, int], None] = lambda done, all_of: None,
) -> list[FilledBoard]:
    """Ask all that the dashboards ask. told: called with how many queries are answered, of all.

    Raises StoreError and MissingValueError; a query that is refused stands in its panel.
    """
    filled = [_empty(board, store, span, scrape, wanted) for board in boards]
    asked = [
        (of, panel, target)
        for of in filled
        for panel in of.panels
        for target in panel.panel.targets
    ]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        answers = _answers(pool, store, asked)
        for done, ((_, panel, target), answer) in enumerate(zip(asked, answers, strict=True), 1):
            if isinstance(answer, QueryError):
                panel.errors.append(f"query {target.ref}: {answer}")
            else:
                panel.lines += [Line(named(target, each), each, target.ref) for each in answer]
            told(done, len(asked))
    return filled


def _empty(
    board: Board, store: Store, span: Range, scrape: float, wanted: Mapping[str, str]
) -> FilledBoard:
    values = choose(board, wanted, store, span, scrape)
    panels = [Filled(panel) for panel in board.panels]
    return FilledBoard(board, span, values, panels, _marks(board, store, span, values))


def _answers(
    pool: Executor, store: Store, asked: Sequence[tuple[FilledBoard, Filled, Target]]
) -> Iterable[list[Series] | QueryError]:
    """In the order in which they were asked; a store that fails ends them all."""

    def ask(one: tuple[FilledBoard, Filled, Target]) -> list[Series] | QueryError:
        of, _, target = one
        query = replaced(target.expr, of.values)
        try:
            if target.instant:
                return store.at(query, of.span.end)
            return store.over(query, of.span)
        except QueryError as error:
            return error

    return pool.map(ask, asked)


def _marks(board: Board, store: Store, span: Range, values: Mapping[str, str]) -> list[Mark]:
    """Each time that a series was, once. Raises QueryError for a query that is refused."""
    found = {
        Mark(value / 1000, series.labels.get("reason", ""))
        for query in board.marks
        for series in store.over(replaced(query, values), span)
        for _, value in series.samples
        if span.start <= value / 1000 <= span.end
    }
    return sorted(found, key=lambda mark: mark.time)


def named(target: Target, series: Series) -> str:
    """What the legend calls a series."""
    if target.legend:
        found = _LABEL.sub(lambda match: series.labels.get(match[1], ""), target.legend)
        return " ".join(found.split())
    return ", ".join(f"{name}={value}" for name, value in sorted(series.labels.items()))
