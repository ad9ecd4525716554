"""The page: every dashboard below the other, in one file that fetches nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files

from evictune.preview.answers import Filled, FilledBoard
from evictune.preview.plots import plot
from evictune.preview.tables import number, table
from evictune.preview.timeline import timeline

_COLUMN, _ROW = 59.0, 34.0
_FRAME, _HEAD = 30.0, 62.0  # what of a panel is not its plot: beside it, above and below
_TIME = "%Y-%m-%d %H:%M:%S"


@dataclass(frozen=True)
class Result:
    """The page, and titles of the panels without data and of those whose queries were refused."""

    html: str
    panels: int
    without_data: Sequence[str]
    refused: Sequence[str]


def page(boards: Sequence[FilledBoard], source: str) -> Result:
    """Draw the dashboards. source: where the data came from, for the page's head."""
    drawn = [(of, each) for of in boards for each in of.panels if each.panel.kind != "row"]
    return Result(
        "\n".join(_page(boards, source)),
        len(drawn),
        [_full(of, each) for of, each in drawn if each.empty and not each.errors],
        [_full(of, each) for of, each in drawn if each.errors],
    )


def _full(of: FilledBoard, filled: Filled) -> str:
    return f"{of.board.name}: {filled.panel.title}"


def _page(boards: Sequence[FilledBoard], source: str) -> Iterator[str]:
    own = files("evictune.preview")
    span = boards[0].span
    yield '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield "<title>evictune dashboards</title>"
    yield f"<style>\n{(own / 'page.css').read_text('utf-8')}</style>\n</head>\n<body>"
    yield "<h1>evictune dashboards</h1>"
    yield (
        f'<p class="facts">{escape(source)}, {_utc(span.start)} to {_utc(span.end)} UTC, '
        f"every {span.step:g} s</p>"
    )
    links = (f'<a href="#{of.board.uid}">{escape(of.board.title)}</a>' for of in boards)
    yield f"<nav>{''.join(links)}</nav>"
    for of in boards:
        yield from _board(of)
    yield '<div id="tip"></div>'
    yield f"<script>\n{(own / 'page.js').read_text('utf-8')}</script>\n</body>\n</html>\n"


def _board(of: FilledBoard) -> Iterator[str]:
    board = of.board
    chosen = ", ".join(
        f"{variable.name} {'all' if value == variable.all_value else value}"
        for variable in board.variables
        for value in [of.values[variable.name].replace("\\", "")]
    )
    yield f'<section id="{board.uid}">\n<h2>{escape(board.title)}</h2>'
    yield f'<p class="about">{escape(board.description)}</p>'
    yield f'<p class="facts">{escape(chosen)}</p>\n<div class="grid">'
    for filled in of.panels:
        yield _panel(of, filled)
    yield "</div>\n</section>"


def _panel(of: FilledBoard, filled: Filled) -> str:
    panel = filled.panel
    x, y, width, height = panel.place
    place = f"grid-column:{x + 1}/span {width};grid-row:{y + 1}/span {height}"
    if panel.kind == "row":
        return f'<div class="row" style="grid-row:{y + 1}">{escape(panel.title)}</div>'
    state = "error" if filled.errors else "none" if filled.empty else "drawn"
    about = f'<i class="info" tabindex="0">i<span>{escape(panel.description)}</span></i>'
    runbook = f'<a href="{escape(panel.runbook)}">runbook</a>' if panel.runbook else ""
    return (
        f'<article class="panel" style="{place};min-height:{height * _ROW:g}px" '
        f'data-kind="{panel.kind}" data-state="{state}">'
        f"<header><h3>{escape(panel.title)}</h3>{about}{runbook}</header>"
        f"{_inside(of, filled)}</article>"
    )


def _inside(of: FilledBoard, filled: Filled) -> str:
    panel, span = filled.panel, of.span
    if filled.errors:
        return f'<p class="error">{escape("; ".join(filled.errors))}</p>'
    if filled.empty:
        looks = "none figure" if panel.kind == "stat" else "none"
        return f'<p class="{looks}">{escape(str(panel.defaults.get("noValue", "No data")))}</p>'
    _, _, columns, rows = panel.place
    width, height = columns * _COLUMN - _FRAME, rows * _ROW - _HEAD
    match panel.kind:
        case "timeseries":
            return plot(filled, span, of.marks, width, height)
        case "state-timeline":
            return timeline(filled, span, of.marks, width, height)
        case "table":
            return f'<div class="scroll">{table(filled, span.end)}</div>'
        case _:
            return number(filled)


def _utc(seconds: float) -> str:
    return time.strftime(_TIME, time.gmtime(seconds))
