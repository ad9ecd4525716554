"""Tables that a person can read: plain text, aligned, thousands apart."""

from __future__ import annotations

from collections.abc import Sequence

LEFT, RIGHT = str.ljust, str.rjust
WIDTH = 112
"""Characters that a line of a table may have, as long as its columns allow it."""


def table(header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Lines with aligned columns, the first `left` of them to the left; no trailing blanks."""
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
    lines = [_line(header, widths, left), "  ".join("-" * width for width in widths)]
    lines += [_line(row, widths, left) for row in rows]
    return "\n".join(lines)


def folded(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1, keep: int, step: int = 1
) -> str:
    """A table no wider than WIDTH: columns that do not fit follow below, in tables of their own.

    keep: columns that each of these begins with. step: how many columns belong together.
    """
    parts, taken = [], list(range(keep))
    for begin in range(keep, len(header), step):
        group = list(range(begin, min(begin + step, len(header))))
        if len(taken) > keep and _width(header, rows, [*taken, *group]) > WIDTH:
            parts.append(taken)
            taken = list(range(keep))
        taken += group
    return "\n\n".join(
        table([header[i] for i in part], [[row[i] for i in part] for row in rows], left)
        for part in [*parts, taken]
    )


def _width(header: Sequence[str], rows: Sequence[Sequence[str]], columns: Sequence[int]) -> int:
    return sum(2 + max(len(row[i]) for row in (header, *rows)) for i in columns) - 2


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
