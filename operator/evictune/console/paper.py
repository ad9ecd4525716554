"""Text for terminals: wrapped to their width, in colour where wanted, safe to print."""

from __future__ import annotations

import os
import shutil
import textwrap
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TextIO

from evictune.api.quantity import format_span

WIDTH = 100
NARROWEST = 60
WIDEST = 120
# A column of text narrower than this is harder to read than text on a line of its own.
_READABLE = 36
_GAP = "  "
_LABEL = 16
# What other people wrote is printed, never obeyed: no escape sequence reaches the terminal.
_CONTROL = {code: "\ufffd" for code in (*range(32), *range(127, 160)) if chr(code) not in "\t\n\r"}


@dataclass(frozen=True)
class Paper:
    """How to write: at what time (seconds since the epoch), whether in colour, how wide."""

    now: float
    colored: bool
    width: int = WIDTH

    @property
    def narrow(self) -> bool:
        """Whether labels and text stand below each other."""
        return self.width < WIDTH

    def paint(self, text: str, code: str) -> str:
        """The text in a colour (an ANSI code)."""
        return f"\x1b[{code}m{text}\x1b[0m" if self.colored and text else text

    def headed(self, title: str, text: str = "", mark: str = "") -> list[str]:
        """A section's first lines; what of them reads `mark` is painted."""
        head = title.upper()
        first, *rest = self.wrapped(f"{head}  {text}".rstrip(), "", "  ")
        first = first.replace(mark, self.paint(mark, "1;36"), 1) if mark else first
        return [first.replace(head, self.paint(head, "1"), 1), *rest]

    def row(self, label: str, text: str) -> list[str]:
        """A label and its text, wrapped below itself."""
        head = f"  {label:<{_LABEL}} "
        return self.wrapped(text, head, " " * len(head))

    def ago(self, then: float) -> str:
        """How long ago, or how long from now."""
        if then <= self.now:
            return format_span(self.now - then) + " ago"
        return "in " + format_span(then - self.now)

    def wrapped(self, text: str, first: str, rest: str) -> list[str]:
        """Lines of at most the paper's width."""
        filled = textwrap.wrap(
            printable(text), self.width, initial_indent=first, subsequent_indent=rest
        )
        return filled or [first.rstrip()]

    def table(
        self,
        heads: Sequence[str],
        rows: Sequence[Sequence[str]],
        colors: Mapping[str, str] | None = None,
    ) -> list[str]:
        """Columns as wide as their widest cell; the last is wrapped, or put below if too narrow.

        `colors`: cells with these texts are painted.
        """
        fixed = _widths(heads, rows)
        room = self.room(heads, rows)
        below = room < _READABLE
        shown = heads[:-1] if below else heads
        lines = [self.paint(_line(shown, fixed), "1")]
        for *cells, text in rows:
            head = _line([printable(each) for each in cells], fixed)
            indent = " " * 4 if below else " " * (self.width - room)
            body = self.wrapped(text, indent, indent) if text else []
            if not below and body:
                head, body = f"{head:<{len(indent)}}{body[0].strip()}", body[1:]
            lines += [self._painted(head.rstrip(), cells, colors or {}), *body]
        return lines

    def room(self, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
        """What a table's last column has; none or less: the others do not fit."""
        fixed = _widths(heads, rows)
        return self.width - sum(fixed) - len(_GAP) * len(fixed)

    def _painted(self, line: str, cells: Sequence[str], colors: Mapping[str, str]) -> str:
        for cell in cells:
            if cell in colors:
                line = line.replace(cell, self.paint(cell, colors[cell]), 1)
        return line


def paper_for(stream: TextIO, color: str) -> Paper:
    """Paper of the stream's width; `color`: auto, always or never.

    auto: on a terminal that is not dumb, unless NO_COLOR is set (https://no-color.org).
    """
    terminal = stream.isatty()
    plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    colored = color == "always" or (color == "auto" and terminal and not plain)
    width = shutil.get_terminal_size((WIDTH, 24)).columns if terminal else WIDTH
    return Paper(time.time(), colored, min(max(width, NARROWEST), WIDEST))


def printable(text: str) -> str:
    """The text without what would steer a terminal."""
    return text.translate(_CONTROL)


def _widths(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    """Of all columns but the last."""
    columns = zip(*(each[:-1] for each in (heads, *rows)), strict=True)
    return [max(map(len, map(printable, column))) for column in columns]


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=False)]
    return _GAP.join([*padded, *cells[len(widths) :]]).rstrip()
