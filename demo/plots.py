"""The report's figure, as SVG: both arms over the request number, which is their common clock."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Sequence

import matplotlib as mpl
from evictune_policies.replay.console.plots import PLAIN, TARGET
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from demo.constants import LOAD, OBJECTIVE
from demo.record import Arm, Numbers, trailing
from demo.summary import Summary

WINDOW = 100
"""Requests over which the moving percentiles are taken."""
STOCK, LOOP = "#b8621b", "#1f5fa8"
STYLES = (("p50", ":", 1.2), ("p95", "--", 1.3), ("p99", "-", 1.9))
TTFT_FIGURES: dict[str, Callable[[Numbers], float]] = {
    "p50": lambda figures: figures.ttft_p50 * 1000,
    "p95": lambda figures: figures.ttft_p95 * 1000,
    "p99": lambda figures: figures.ttft_p99 * 1000,
}
UNCACHED_FIGURES: dict[str, Callable[[Numbers], float]] = {
    "p50": lambda figures: figures.uncached_p50,
    "p95": lambda figures: figures.uncached_p95,
    "p99": lambda figures: figures.uncached_p99,
}


def figure_svg(summary: Summary) -> str:
    """The whole figure as an <svg> element."""
    with mpl.rc_context(PLAIN):
        figure = Figure(figsize=(11, 11.5), layout="constrained")
        axes = figure.subplots(4, 1, sharex=True, height_ratios=(3, 3, 2, 2))
        _percentiles(axes[0], summary, TTFT_FIGURES, "time to first token, ms")
        axes[0].axhline(summary.threshold * 1000, color=TARGET, linewidth=1)
        axes[0].annotate(
            f"target: p{float(OBJECTIVE.quantile) * 100:g} ≤ {summary.threshold * 1000:.0f} ms",
            (0, summary.threshold * 1000),
            xycoords=("axes fraction", "data"),
            xytext=(4, 3),
            textcoords="offset points",
            color=TARGET,
            bbox={"color": "white", "alpha": 0.8, "pad": 1, "linewidth": 0},
        )
        _percentiles(axes[1], summary, UNCACHED_FIGURES, "uncached prompt tokens")
        _hit_ratio(axes[2], summary)
        _xi(axes[3], summary.loop)
        for row in axes:
            _phases(row, summary.loop, titled=row is axes[0])
            row.grid(axis="y", color="#e8eaed", linewidth=0.8)
            row.set_axisbelow(True)
        axes[0].legend(
            loc="lower left", bbox_to_anchor=(0, 1.1), ncols=6, frameon=False, borderaxespad=0
        )
        axes[-1].set_xlabel("request number (the same requests in both arms)")
        axes[-1].set_xlim(0, len(summary.loop.outcomes))
        return _svg(figure)


def _percentiles(
    axes: Axes, summary: Summary, figures: dict[str, Callable[[Numbers], float]], label: str
) -> None:
    for arm, colour in ((summary.lru, STOCK), (summary.loop, LOOP)):
        for name, style, width in STYLES:
            points = trailing(arm.outcomes, WINDOW, figures[name])
            axes.plot(
                [x for x, _ in points],
                [y for _, y in points],
                linestyle=style,
                linewidth=width,
                color=colour,
                label=f"{arm.title} {name}",
            )
    axes.set_ylabel(f"{label}\n(last {WINDOW} requests)")
    axes.set_ylim(bottom=0)


def _hit_ratio(axes: Axes, summary: Summary) -> None:
    for arm, colour in ((summary.lru, STOCK), (summary.loop, LOOP)):
        points = trailing(arm.outcomes, WINDOW, lambda figures: figures.hit_ratio)
        axes.plot([x for x, _ in points], [y for _, y in points], color=colour, linewidth=1.6)
    axes.set_ylabel(f"prefix cache hit ratio\n(last {WINDOW} requests)")
    axes.set_ylim(0, 1)


def _xi(axes: Axes, loop: Arm) -> None:
    """xi as the engine itself reported it; a number marks each step told below the figure."""
    axes.set_yscale("log", base=2)
    stock = OBJECTIVE.xi_max * 2
    points = [(loop.position(s.time), s.xi_tokens or stock) for s in loop.samples]
    points.append((len(loop.outcomes), points[-1][1]))
    axes.step([x for x, _ in points], [y for _, y in points], where="post", color=LOOP, lw=1.8)
    ticks = [2**power for power in range(5, 13)]
    axes.set_yticks([*ticks, stock], [*map(str, ticks), "stock LRU"])
    axes.minorticks_off()
    axes.set_ylim(OBJECTIVE.xi_min / 1.3, stock * 3.2)
    axes.set_ylabel("xi in force, tokens\n(the engine's own word)")
    for number, position in marks(loop):
        axes.axvline(position, color="#9aa0a6", linewidth=0.7)
        axes.text(
            position,
            stock * 1.7,
            str(number),
            ha="center",
            va="center",
            fontsize=7.5,
            color="white",
            bbox={"boxstyle": "circle,pad=0.25", "color": LOOP},
        )


def marks(loop: Arm) -> Iterator[tuple[int, int]]:
    """(number, position) of each step that is marked: those that changed what is in force."""
    for number, step in enumerate(loop.steps, start=1):
        if step.reason in ("Acknowledged", "Reverted"):
            yield number, loop.position(step.time)


def _phases(axes: Axes, arm: Arm, *, titled: bool) -> None:
    for title, start, end, counted in _spans(arm):
        if not counted:
            axes.axvspan(start, end, color="#f1f3f4", zorder=-2)
        if titled and counted:
            axes.text(
                (start + end) / 2,
                1.03,
                title,
                transform=axes.get_xaxis_transform(),
                ha="center",
                fontweight="bold",
            )


def _spans(arm: Arm) -> Sequence[tuple[str, int, int, bool]]:
    """(title, first request, end, counted) of each phase present in the arm."""
    spans: dict[str, tuple[str, int, int, bool]] = {}
    for position, outcome in enumerate(arm.outcomes):
        request = outcome.request
        start = spans[request.phase][1] if request.phase in spans else position
        span = (LOAD.titles[request.phase], start, position + 1, request.counted)
        spans[request.phase] = span
    return list(spans.values())


def _svg(figure: Figure) -> str:
    """The <svg> element alone, scaling with the page."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    return re.sub(r' (width|height)="[0-9.]+pt"', "", text[text.index("<svg") :], count=2)
