"""Panels of tables and of single numbers, as HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from evictune.preview.answers import Filled
from evictune.preview.boards import Panel, is_value
from evictune.preview.units import shown

ROWS = 20

Row = dict[str, str | float]


def number(filled: Filled) -> str:
    """The last value of a panel with one number."""
    panel = filled.panel
    value = next(line.series.samples[-1][1] for line in filled.lines if line.series.samples)
    named = panel.shown(value)
    if named:
        return f'<p class="figure" style="color:{named.colour}">{escape(named.text)}</p>'
    text = shown(value, str(panel.defaults.get("unit", "none")))
    colour = panel.threshold_colour(value)
    return f'<p class="figure" style="color:{colour}">{escape(text)}</p>'


def table(filled: Filled, now: float) -> str:
    """A table: rows joined over its queries, in the panel's order."""
    panel = filled.panel
    rows = joined(filled)
    columns = _columns(panel, rows)
    rows = _sorted(panel, rows)
    head = "".join(f"<th>{escape(_title(panel, each))}</th>" for each in columns)
    body = "".join(
        f"<tr>{''.join(_cell(panel, each, row.get(each), now) for each in columns)}</tr>"
        for row in rows[:ROWS]
    )
    more = f"<p>and {len(rows) - ROWS} more</p>" if len(rows) > ROWS else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def joined(filled: Filled) -> list[Row]:
    """One row for each set of labels: rows that agree in the labels that both have are one."""
    single = len(filled.panel.targets) == 1
    rows: list[Row] = []
    for target in filled.panel.targets:
        value = "Value" if single else f"Value #{target.ref}"
        for line in filled.lines:
            if line.ref == target.ref and line.series.samples:
                _join(rows, line.series.labels, value, line.series.samples[-1][1])
    return rows


def _join(rows: list[Row], labels: Mapping[str, str], field: str, value: float) -> None:
    agreeing = [row for row in rows if field not in row and _agree(row, labels)]
    for row in agreeing:
        row.update({**labels, field: value})
    if not agreeing:
        rows.append({**labels, field: value})


def _agree(row: Row, labels: Mapping[str, str]) -> bool:
    common = [name for name in labels if name in row]
    return bool(common) and all(row[name] == labels[name] for name in common)


def _columns(panel: Panel, rows: Sequence[Row]) -> list[str]:
    arranged = panel.transformation("organize")
    order: Mapping[str, int] = arranged.get("indexByName", {})
    present = dict.fromkeys(name for row in rows for name in row)
    kept = [each for each in present if not arranged.get("excludeByName", {}).get(each)]
    return sorted(kept, key=lambda each: order.get(each, len(order)))


def _sorted(panel: Panel, rows: Sequence[Row]) -> list[Row]:
    asked = panel.body.get("options", {}).get("sortBy")
    by: Mapping[str, Any] = asked[0] if asked else {}
    names = (name for row in rows for name in row)
    wanted = by.get("displayName")
    # There is none where the query of that column found nothing.
    field = next((name for name in names if _title(panel, name) == wanted), None)
    if field is None:
        return sorted(rows, key=lambda row: [str(each) for each in row.values()])

    def key(row: Row) -> float:
        value = row.get(field)
        return value if isinstance(value, float) else float("-inf")

    return sorted(rows, key=key, reverse=bool(by.get("desc")))


def _title(panel: Panel, field: str) -> str:
    return str(panel.of(field).get("displayName", field))


def _cell(panel: Panel, field: str, value: str | float | None, now: float) -> str:
    if not isinstance(value, float):
        kind = ' class="value"' if is_value(field) else ""
        return f"<td{kind}>{escape(value or '')}</td>"
    named = panel.shown(value, field)
    if named:
        return f'<td><b style="color:{named.colour}">{escape(named.text)}</b></td>'
    unit = str(panel.of(field).get("unit", panel.defaults.get("unit", "none")))
    return f'<td class="value">{escape(shown(value, unit, now))}</td>'
