"""Panels of states over time, as SVG: one row a series."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from evictune.preview.answers import Filled, Mark
from evictune.preview.boards import Panel, Shown
from evictune.preview.canvas import Canvas, fitting, margin, svg
from evictune.preview.store import Range, Series

_GAP = 1.5
_LETTER = 6.6
_NAMES = 0.4  # of the width, at most
_TALLEST = 34.0
_OTHER = "#8e8e8e"


def timeline(
    filled: Filled, span: Range, marks: Sequence[Mark], width: float, height: float
) -> str:
    """The rows and their legend; as tall as they need to be."""
    lines = [each for each in filled.lines if each.series.samples]
    shortest = 14.0 * len(lines) + 40
    left = margin([each.name for each in lines], width * _NAMES)
    canvas = Canvas(width, max(height, shortest), span, left)
    row = min((canvas.bottom - canvas.top) / len(lines), _TALLEST)
    if row == _TALLEST:
        canvas = Canvas(width, _TALLEST * len(lines) + 40, span, canvas.left)
    parts = list(canvas.times())
    seen: dict[str, str] = {}
    for number, line in enumerate(lines):
        y = canvas.top + number * row
        parts.append(
            f'<text x="{canvas.left - 6:g}" y="{y + row / 2 + 3.5:.1f}" text-anchor="end">'
            f"<title>{escape(line.name)}</title>{escape(fitting(line.name, left))}</text>"
        )
        for start, end, shown in _stretches(filled.panel, line.series, span):
            seen[shown.text] = shown.colour
            parts += _box(canvas, start, end, y + row * 0.1, row * 0.8, shown)
    parts += canvas.marks(marks)
    return svg(width, canvas.height, parts, ' class="plot"') + _legend(seen)


def _stretches(panel: Panel, series: Series, span: Range) -> Iterator[tuple[float, float, Shown]]:
    """(start, end, what it is) of each stretch of one value without a gap."""
    start = last = value = None
    for time, now in series.samples:
        if start is not None and last is not None and value is not None:
            gap = time - last > _GAP * span.step
            if gap or now != value:
                yield start, last + span.step if gap else time, _shown(panel, value)
                start = time
        start = time if start is None else start
        last, value = time, now
    if start is not None and last is not None and value is not None:
        yield start, min(last + span.step, span.end), _shown(panel, value)


def _shown(panel: Panel, value: float) -> Shown:
    return panel.shown(value) or Shown(f"{value:g}", _OTHER)


def _box(
    canvas: Canvas, start: float, end: float, y: float, height: float, shown: Shown
) -> Iterator[str]:
    x = canvas.x(start)
    width = max(canvas.x(end) - x, 1.0)
    yield (
        f'<g><title>{escape(shown.text)}</title><rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" '
        f'height="{height:.1f}" fill="{shown.colour}"/></g>'
    )
    if width > _LETTER * len(shown.text) + 6 and height > 12:
        yield (
            f'<text x="{x + width / 2:.1f}" y="{y + height / 2 + 4:.1f}" text-anchor="middle" '
            f'fill="#fff">{escape(shown.text)}</text>'
        )


def _legend(seen: dict[str, str]) -> str:
    items = "".join(
        f'<li><i style="background:{colour}"></i>{escape(text)}</li>'
        for text, colour in sorted(seen.items())
    )
    return f'<ul class="legend">{items}</ul>'
