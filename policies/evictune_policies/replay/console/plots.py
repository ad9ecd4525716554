"""The reports' figures, as SVG: tails of distributions, and curves over capacity, load or xi."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from numpy.typing import NDArray

INK, TARGET = "#3c4043", "#8a1c3b"
FIXED = {  # what is in most figures looks the same in all of them
    "prefix-lru": ("#b8621b", "-"),
    "t-lru": ("#1f5fa8", "-"),
    "belady": ("#5f6368", "--"),
    "tail-belady": ("#202124", ":"),
    "infinite": ("#9aa0a6", "-."),
}
COLOURS = ("#2e7d32", "#7b3fa0", "#c2185b", "#00838f", "#9e7c00", "#5d4037", "#455a64", "#e53935")
DASHES = ("-", "--", ":", "-.", (0, (6, 1, 1, 1, 1, 1)))
PLAIN: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.size": 9,
    "svg.fonttype": "none",
    "svg.hashsalt": "evictune",
    "axes.edgecolor": "#9aa0a6",
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
"""Matplotlib's settings for every figure of the project."""
RC = {**PLAIN, "axes.grid": True, "grid.color": "#e8eaed", "axes.axisbelow": True}


@dataclass(frozen=True)
class Series:
    """One line: its label, the policy that it belongs to, and its points."""

    label: str
    policy: str
    y: Sequence[float] | NDArray[Any]
    x: Sequence[float] = ()


@dataclass(frozen=True)
class Panel:
    """One plot. scale: of x. percent: whether y is a share. marks: (x, text), vertical lines."""

    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    scale: str = "linear"
    percent: bool = False
    marks: Sequence[tuple[float, str]] = ()
    ticks: Sequence[float] = ()


def curves_svg(panels: Sequence[Panel], columns: int = 2) -> str:
    """Lines through points, one plot a panel, one legend for all."""
    return _figure(panels, columns, _curve)


def tails_svg(panels: Sequence[Panel], columns: int = 2) -> str:
    """The share of values above x, for each series' values in y: both axes logarithmic."""
    return _figure(panels, columns, _tail)


def _figure(panels: Sequence[Panel], columns: int, draw: Any) -> str:
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    with mpl.rc_context(RC):
        figure = Figure(figsize=(11, 0.5 + 3.4 * rows), layout="constrained")
        grid = figure.subplots(rows, columns, squeeze=False).ravel()
        styles = _styles([series for panel in panels for series in panel.series])
        for axes, panel in zip(grid, panels, strict=False):
            draw(axes, panel, styles)
            _dress(axes, panel)
        for axes in grid[len(panels) :]:
            axes.set_visible(False)
        handles = {h.get_label(): h for axes in grid for h in axes.get_lines() if _named(h)}
        figure.legend(
            handles.values(),
            handles.keys(),
            loc="outside upper left",
            ncols=min(3 if max(map(len, handles)) > 24 else 5, len(handles)),
            frameon=False,
        )
        return _svg(figure)


def _named(line: Any) -> bool:
    return not str(line.get_label()).startswith("_")


def _styles(series: Sequence[Series]) -> dict[str, tuple[str, Any]]:
    """A colour for each policy; a dash for each of its labels."""
    styles: dict[str, tuple[str, Any]] = {}
    colours = iter(COLOURS * 4)
    of_policy: dict[str, tuple[str, Any]] = {}
    counts: dict[str, int] = {}
    for one in series:
        if one.label in styles:
            continue
        if one.policy not in of_policy:
            of_policy[one.policy] = FIXED.get(one.policy) or (next(colours), "-")
        colour, dash = of_policy[one.policy]
        nth = counts[one.policy] = counts.get(one.policy, -1) + 1
        styles[one.label] = (colour, dash if nth == 0 else DASHES[nth % len(DASHES)])
    return styles


def _curve(axes: Axes, panel: Panel, styles: dict[str, tuple[str, Any]]) -> None:
    for series in panel.series:
        colour, dash = styles[series.label]
        marker = "o" if len(series.x) <= 24 else ""
        axes.plot(
            series.x, series.y, color=colour, ls=dash, lw=1.6, marker=marker, ms=3,
            label=series.label,
        )  # fmt: skip
    axes.set_ylim(bottom=0)


def _tail(axes: Axes, panel: Panel, styles: dict[str, tuple[str, Any]]) -> None:
    for series in panel.series:
        colour, dash = styles[series.label]
        values = np.sort(np.asarray(series.y, dtype=float))
        above = 1 - np.arange(1, len(values) + 1) / max(1, len(values))
        keep = _thinned(above)
        axes.step(
            values[keep], above[keep], where="post", color=colour, ls=dash, lw=1.6,
            label=series.label,
        )  # fmt: skip
    axes.set_yscale("log")
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_ylim(top=1)


def _thinned(above: NDArray[Any]) -> NDArray[Any]:
    """Indices that are enough for a drawing: evenly in the logarithm of the share above."""
    if len(above) < 600:
        return np.flatnonzero(above > 0)
    wanted = 1 - np.geomspace(1 / len(above), 1, 600)
    return np.unique(np.clip((wanted * len(above)).astype(int), 0, len(above) - 2))


def _dress(axes: Axes, panel: Panel) -> None:
    axes.set_title(panel.title, loc="left", fontsize=9.5, fontweight="bold")
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel(panel.y_label)
    axes.set_xscale(panel.scale)
    if panel.scale == "log":
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_minor_formatter(NullFormatter())
    if panel.ticks:
        axes.set_xticks(list(panel.ticks))
        axes.minorticks_off()
    axes.xaxis.set_major_formatter(FuncFormatter(_number))
    if panel.percent:
        axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:.3g} %"))
    else:
        axes.yaxis.set_major_formatter(FuncFormatter(_number))
    for x, text in panel.marks:
        axes.axvline(x, color=TARGET, lw=1)
        axes.annotate(
            text,
            (x, 1),
            xycoords=("data", "axes fraction"),
            xytext=(3, -3),
            textcoords="offset points",
            va="top",
            color=TARGET,
            fontsize=8,
            bbox={"color": "white", "alpha": 0.8, "pad": 1, "linewidth": 0},
        )


def _number(value: float, _: object = None) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def _svg(figure: Figure) -> str:
    """The <svg> element alone, scaling with the page."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    return re.sub(r' (width|height)="[0-9.]+pt"', "", text[text.index("<svg") :], count=2)
