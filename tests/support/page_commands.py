"""What a Markdown page has people type: commands and queries."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

Words = list[str]


def blocks(text: str, language: str) -> list[str]:
    """The lines of the fenced blocks of a language."""
    found = re.findall(rf"^ *```{language}\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL)
    return [line.strip() for block in found for line in block.splitlines() if line.strip()]


def commands(text: str) -> Iterator[Words]:
    """Every command of the blocks and between backticks, as words; pipes are taken apart."""
    told = re.findall(r"`((?:evictune|kubectl) [^`]+)`", text)
    for line in [*blocks(text, "sh"), *(each.replace("\\|", "|") for each in told)]:
        words: Words = []
        for word in [*shlex.split(line), "|"]:
            if word == "|":
                yield words
                words = []
            else:
                words.append(word)
