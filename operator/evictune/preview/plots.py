"""Panels of time series, as SVG."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

from evictune.preview.answers import Filled, Line, Mark
from evictune.preview.boards import Panel
from evictune.preview.canvas import Canvas, fitted, svg
from evictune.preview.store import Range
from evictune.preview.units import shown

PALETTE = (
    *("#3274d9", "#ff780a", "#56a64b", "#a352cc", "#e0b400", "#0f9d9d", "#e02f44", "#7d5a3c"),
    *("#c15c9f", "#6e7f14", "#5794f2", "#8e8e8e"),
)
# Between samples further apart than this many steps nothing is known.
_GAP = 1.5
_HEADROOM = 1.05

Points = list[tuple[float, float, float]]  # time, value, what it stands upon


@dataclass(frozen=True)
class Drawn:
    """A line with its looks."""

    line: Line
    colour: str
    points: Points
    dashed: bool
    width: float
    opacity: float


def plot(filled: Filled, span: Range, marks: Sequence[Mark], width: float, height: float) -> str:
    """The plot and its legend."""
    panel = filled.panel
    unit = str(panel.defaults.get("unit", "none"))
    drawn = _drawn(panel, [each for each in filled.lines if each.series.samples], span.step)
    low, high = _limits(panel, drawn)
    canvas, at = fitted(width, height, span, low, high, unit)
    stepped = panel.custom.get("lineInterpolation") == "stepAfter"
    parts = [*canvas.values(at, unit), *canvas.times()]
    parts += [_band(canvas, panel, drawn, span.step)]
    for each in drawn:
        parts += _line(canvas, each, span.step, stepped)
    parts += canvas.marks(marks)
    hover = escape(json.dumps(_hover(drawn, span, unit), ensure_ascii=False))
    more = f' class="plot" data-left="{canvas.left:g}" data-inner="{canvas.inner:g}"'
    return svg(width, height, parts, f'{more} data-hover="{hover}"') + _legend(panel, drawn, unit)


def _drawn(panel: Panel, lines: Sequence[Line], step: float) -> list[Drawn]:
    stacked = panel.custom.get("stacking", {}).get("mode") == "normal"
    stands: dict[int, float] = {}
    found = []
    for number, line in enumerate(lines):
        points: Points = []
        for time, value in line.series.samples:
            slot = round(time / step)
            base = stands.get(slot, 0.0) if stacked else 0.0
            stands[slot] = base + value
            points.append((time, base + value, base))
        own = panel.of(line.name)
        colour = own.get("color", {}).get("fixedColor") or PALETTE[number % len(PALETTE)]
        opacity = own.get("custom.fillOpacity", panel.custom.get("fillOpacity", 0)) / 100
        width = own.get("custom.lineWidth", panel.custom.get("lineWidth", 1))
        # Grafana's colour between two series is drawn apart.
        opacity = 0.0 if "custom.fillBelowTo" in own else opacity
        dashed = own.get("custom.lineStyle", {}).get("fill") == "dash"
        found.append(Drawn(line, colour, points, dashed, width, opacity))
    return found


def _limits(panel: Panel, drawn: Sequence[Drawn]) -> tuple[float, float]:
    values = [value for each in drawn for _, value, _ in each.points]
    low = panel.defaults.get("min", min([0.0, *values]))
    high = panel.defaults.get("max", max(values, default=0.0) * _HEADROOM)
    return low, high if high > low else low + 1


def _runs(points: Points, step: float) -> Iterator[Points]:
    """Stretches without a gap."""
    run = points[:1]
    for before, now in pairwise(points):
        if now[0] - before[0] > _GAP * step:
            yield run
            run = []
        run.append(now)
    if run:
        yield run


def _line(canvas: Canvas, drawn: Drawn, step: float, stepped: bool) -> Iterator[str]:
    dash = ' stroke-dasharray="8 6"' if drawn.dashed else ""
    for run in _runs(drawn.points, step):
        if len(run) == 1:
            # A lone sample has no extent: as wide as its step.
            run = [run[0], (min(run[0][0] + step, canvas.span.end), *run[0][1:])]
        upper = [(canvas.x(time), canvas.y(value)) for time, value, _ in run]
        lower = [(canvas.x(time), canvas.y(base)) for time, _, base in run]
        if drawn.opacity:
            area = _path(upper, stepped) + "L" + _path(lower[::-1], stepped, back=True)[1:] + "Z"
            yield f'<path d="{area}" fill="{drawn.colour}" fill-opacity="{drawn.opacity:g}"/>'
        if drawn.width:
            yield (
                f'<path class="line" d="{_path(upper, stepped)}" fill="none" '
                f'stroke="{drawn.colour}" stroke-width="{drawn.width:g}"{dash}/>'
            )


def _path(points: Sequence[tuple[float, float]], stepped: bool, *, back: bool = False) -> str:
    """Lines through points; stepped: each value holds until the next."""
    text = f"M{points[0][0]:.1f} {points[0][1]:.1f}"
    for x, y in points[1:]:
        if stepped:
            text += f"V{y:.1f}H{x:.1f}" if back else f"H{x:.1f}V{y:.1f}"
        else:
            text += f"L{x:.1f} {y:.1f}"
    return text


def _band(canvas: Canvas, panel: Panel, drawn: Sequence[Drawn], step: float) -> str:
    """What lies between two series, where both are known."""
    by_name = {each.line.name: each for each in drawn}
    text = ""
    for each in drawn:
        own = panel.of(each.line.name)
        below = by_name.get(own.get("custom.fillBelowTo", ""))
        if below is None:
            continue
        floor = {time: value for time, value, _ in below.points}
        both = [(time, value, floor[time]) for time, value, _ in each.points if time in floor]
        opacity = own.get("custom.fillOpacity", 0) / 100
        for run in _runs(both, step):
            upper = [(canvas.x(time), canvas.y(value)) for time, value, _ in run]
            lower = [(canvas.x(time), canvas.y(base)) for time, _, base in run]
            area = _path(upper, False) + "L" + _path(lower[::-1], False)[1:] + "Z"
            text += f'<path d="{area}" fill="{each.colour}" fill-opacity="{opacity:g}"/>'
    return text


def _hover(drawn: Sequence[Drawn], span: Range, unit: str) -> dict[str, object]:
    """What the page's script shows under the pointer: a text for every step of every line."""
    count = round((span.end - span.start) / span.step) + 1
    rows = []
    for each in drawn:
        texts = [""] * count
        for time, value in each.line.series.samples:
            slot = round((time - span.start) / span.step)
            if 0 <= slot < count:
                texts[slot] = shown(value, unit)
        rows.append([each.line.name, each.colour, texts])
    return {"start": span.start, "step": span.step, "rows": rows}


def _legend(panel: Panel, drawn: Sequence[Drawn], unit: str) -> str:
    """Each line's colour and name, and its last value where the panel wants it."""
    items = []
    for each in drawn:
        last = shown(each.line.series.samples[-1][1], unit)
        text = f" <b>{escape(last)}</b>" if panel.legend_values else ""
        name = escape(each.line.name or "value")
        items.append(f'<li><i style="background:{each.colour}"></i>{name}{text}</li>')
    return f'<ul class="legend">{"".join(items)}</ul>'
