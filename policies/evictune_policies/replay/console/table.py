"""Tables that a person can read: plain text, aligned, thousands apart."""

from __future__ import annotations

from collections.abc import Sequence

LEFT, RIGHT = str.ljust, str.rjust


def table(header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Lines with aligned columns, the first `left` of them to the left; no trailing blanks."""
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
    lines = [_line(header, widths, left), "  ".join("-" * width for width in widths)]
    lines += [_line(row, widths, left) for row in rows]
    return "\n".join(lines)


def _line(cells: Sequence[str], widths: Sequence[int], left: int) -> str:
    aligned = [
        (LEFT if index < left else RIGHT)(cell, width)
        for index, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  ".join(aligned).rstrip()


def count(value: float | None) -> str:
    """A number of tokens, blocks or requests."""
    return "" if value is None else f"{value:,.0f}"


def share(value: float | None) -> str:
    """A share in per cent with one decimal; blank for none."""
    # Adding 0 makes of a rounded -0.0 a 0.0.
    return "" if value is None else f"{round(100 * value, 1) + 0.0:.1f} %"


def duration(seconds: float) -> str:
    """A time as a person would write it: 800 ms, 2.5 s."""
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 120 else f"{seconds / 60:.3g} min"
