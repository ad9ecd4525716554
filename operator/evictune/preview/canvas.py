"""Where things lie in a plot: seconds and values to the SVG's units, axes and marks."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from evictune.preview.answers import Mark
from evictune.preview.store import Range
from evictune.preview.units import shown, ticks

INK, GRID, MARK = "#5b6068", "#e4e7eb", "#3274d9"
_BOTTOM, _TOP, _RIGHT, _LETTER = 22.0, 12.0, 8.0, 6.2
_TIMES = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
_APART = 80.0


@dataclass(frozen=True)
class Canvas:
    """A plot of `width` x `height`, whose left margin holds labels; values from low to high."""

    width: float
    height: float
    span: Range
    left: float = 0.0
    low: float = 0.0
    high: float = 1.0

    @property
    def inner(self) -> float:
        """Width of the plot without margins."""
        return self.width - self.left - _RIGHT

    @property
    def top(self) -> float:
        """Where the highest value lies."""
        return _TOP

    @property
    def bottom(self) -> float:
        """Where the lowest value lies."""
        return self.height - _BOTTOM

    def x(self, seconds: float) -> float:
        """Where a time lies."""
        share = (seconds - self.span.start) / (self.span.end - self.span.start)
        return self.left + share * self.inner

    def y(self, value: float) -> float:
        """Where a value lies; those beyond the axis lie at its end."""
        share = (value - self.low) / (self.high - self.low)
        return self.bottom - min(max(share, 0.0), 1.0) * (self.bottom - self.top)

    def times(self) -> Iterator[str]:
        """The axis of time, in UTC."""
        span = self.span.end - self.span.start
        most = max(2, int(self.inner / _APART))
        apart = next((each for each in _TIMES if span / each <= most), span)
        moment = -(-self.span.start // apart) * apart
        pattern = "%m-%d %H:%M" if span > 86400 else "%H:%M:%S" if apart < 60 else "%H:%M"
        while moment <= self.span.end:
            x, text = self.x(moment), time.strftime(pattern, time.gmtime(moment))
            anchor = "end" if x > self.width - _APART / 3 else "middle"
            x_text = self.width - 1 if anchor == "end" else x
            yield f'<path d="M{x:.1f} {self.top:g}V{self.bottom:g}" stroke="{GRID}"/>'
            yield (
                f'<text x="{x_text:.1f}" y="{self.height - 6:g}" text-anchor="{anchor}">{text}'
                "</text>"
            )
            moment += apart

    def values(self, at: Sequence[float], unit: str) -> Iterator[str]:
        """The axis of values."""
        for value in at:
            y = self.y(value)
            yield f'<path d="M{self.left:g} {y:.1f}H{self.width - _RIGHT:g}" stroke="{GRID}"/>'
            yield (
                f'<text x="{self.left - 6:g}" y="{y + 3.5:.1f}" text-anchor="end">'
                f"{escape(shown(value, unit))}</text>"
            )

    def marks(self, marks: Sequence[Mark]) -> Iterator[str]:
        """Vertical lines, each with what happened then."""
        for mark in marks:
            x = self.x(mark.time)
            when = time.strftime("%H:%M:%S", time.gmtime(mark.time))
            yield (
                f'<g class="mark"><title>{escape(mark.text)}, {when} UTC</title>'
                f'<path d="M{x:.1f} {self.top:g}V{self.bottom:g}" stroke="{MARK}" '
                'stroke-dasharray="3 3" stroke-opacity=".75"/>'
                f'<path d="M{x - 4:.1f} {self.top - 7:g}h8l-4 7z" fill="{MARK}"/></g>'
            )


def fitted(
    width: float, height: float, span: Range, low: float, high: float, unit: str
) -> tuple[Canvas, list[float]]:
    """A canvas whose axis of values ends at round numbers, and these."""
    at = ticks(low, high, unit)
    left = 12 + _LETTER * max(len(shown(value, unit)) for value in at)
    return Canvas(width, height, span, left, at[0], at[-1]), at


def margin(names: Sequence[str], most: float) -> float:
    """The left margin that names need, in the SVG's units."""
    return min(most, 14 + _LETTER * max(map(len, names), default=0))


def fitting(name: str, left: float) -> str:
    """The name as it fits into a left margin: its ends, which tell pods apart."""
    letters = int((left - 14) / _LETTER + 1e-9)
    if len(name) <= letters:
        return name
    return f"{name[: (letters - 1) // 2]}…{name[len(name) - letters // 2 :]}"


def svg(width: float, height: float, parts: Sequence[str], more: str = "") -> str:
    """The element, which scales with the page."""
    return (
        f'<svg viewBox="0 0 {width:g} {height:g}" role="img" font-size="11" fill="{INK}"{more}>'
        f"{''.join(parts)}</svg>"
    )
