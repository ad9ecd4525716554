"""Reports: one self-contained HTML file, without scripts and without anything to fetch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from evictune_policies.replay.traces.replacing import replacing


@dataclass(frozen=True)
class Section:
    """A heading, a figure (an <svg> element), a table and notes, each of which may be empty.

    left: how many of the table's columns are aligned to the left.
    """

    title: str
    figure: str = ""
    header: Sequence[str] = ()
    left: int = 1
    rows: Sequence[Sequence[str]] = ()
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Page:
    """A report. verdict: lines, the first of them bold; mood: good, bad or even."""

    title: str
    facts: Sequence[str]
    sections: Sequence[Section]
    verdict: Sequence[str] = ()
    mood: str = "even"


def write(page: Page, path: Path) -> None:
    """Write the page, all of it or nothing. Raises OSError where that cannot be done."""
    environment = Environment(
        loader=PackageLoader("evictune_policies", "replay/console"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    text = environment.get_template("report.html.j2").render(page=page)
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")
