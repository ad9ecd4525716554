"""What a document tells its reader to do: the code blocks of a section, in their order."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tests.support.docs_pages import SHELL, Block, blocks

_HEADING = re.compile(r"^(#+) (.*?) *$")


@dataclass(frozen=True)
class Step:
    """A code block: shell commands, or a manifest to apply."""

    text: str
    manifest: bool = False

    @property
    def lines(self) -> list[str]:
        """The commands, those that are continued on a next line put together."""
        return self.text.replace("\\\n", " ").splitlines()


def steps(document: Path, heading: str) -> list[Step]:
    """The code blocks under a heading, fenced or indented. Raises LookupError."""
    found = list(blocks(document))
    first, end = _section(document.read_text("utf-8").splitlines(), found, heading)
    told = [
        Step(block.text.strip("\n"), manifest=block.language == "yaml")
        for block in found
        if first <= block.line < end and block.language in ("yaml", *SHELL)
    ]
    if not told:
        raise LookupError(f"{document.name}: the section {heading!r} has no code blocks")
    return told


def _section(lines: list[str], found: list[Block], heading: str) -> tuple[int, int]:
    """From which line, from 1, to before which: the next heading of the level or above it."""
    code = {block.line + offset for block in found for offset in range(block.text.count("\n") + 1)}
    level = first = 0
    for number, line in enumerate(lines, start=1):
        match = None if number in code else _HEADING.match(line)
        if match and level and len(match[1]) <= level:
            return first, number
        if match and not level and match[2] == heading:
            level, first = len(match[1]), number
    if not level:
        raise LookupError(f"there is no section {heading!r}")
    return first, len(lines) + 1
