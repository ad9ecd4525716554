"""The documentation as its readers get it: pages, headings, links, code blocks, commands."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from evictune.console.page import command_sections
from evictune.console.parser import make_parser
from evictune_policies.replay.console.cli import make_parser as make_replay_parser
from markdown.extensions.toc import slugify

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = (
    *sorted(DOCS.rglob("*.md")),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "charts/evictune/README.md")),
)
SHELL = ("sh", "bash", "console", "")
_FENCE = re.compile(r"^(?P<indent> *)(?P<fence>```+)(?P<language>[\w-]*)")
_ITEM = re.compile(r"^([-*]|\d+\.) ")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} (.+?)\s*$", re.MULTILINE)
_SUBSTITUTED = re.compile(r"\$\(([^()]*)\)")
_INCLUDED = re.compile(r'^--8<-- "([^":]+)"$', re.MULTILINE)
_INLINE = re.compile(r"`((?:evictune|kubectl) [^`\n]+)`")
_OPERATORS = frozenset("|&;<>()")


@dataclass(frozen=True)
class Block:
    """A code block; `line` is that of its first line, from 1. language "": none was named."""

    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def shown(self) -> str:
        """The text as the site shows it, with the files that it includes."""
        return _INCLUDED.sub(lambda found: (ROOT / found[1]).read_text("utf-8"), self.text)


@dataclass(frozen=True)
class Command:
    """A program with its arguments, as a shell would start it."""

    block: Block
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.block}: {shlex.join(self.words)}"


def blocks(page: Path) -> list[Block]:
    """Fenced ones, and those that are indented by four blanks after a blank line."""
    return list(_blocks(page, page.read_text("utf-8").splitlines()))


def _blocks(page: Path, lines: list[str]) -> Iterator[Block]:
    number, in_item = 0, False
    while number < len(lines):
        line = lines[number]
        fence = _FENCE.match(line)
        after_blank = number == 0 or not lines[number - 1].strip()
        if fence:
            end = number + 1
            while lines[end].strip() != fence["fence"]:
                end += 1
            inner = [each.removeprefix(fence["indent"]) for each in lines[number + 1 : end]]
            yield Block(page, number + 2, fence["language"], "\n".join(inner))
            number = end
        elif line.startswith("    ") and after_blank and not in_item:
            end = number
            while end < len(lines) and (lines[end].startswith("    ") or not lines[end].strip()):
                end += 1
            text = "\n".join(each[4:] for each in lines[number:end]).rstrip()
            yield Block(page, number + 1, "", text)
            number = end - 1
        elif line.strip() and not line.startswith(" "):
            # A number at the beginning of a line in a paragraph makes no list.
            in_item = bool(_ITEM.match(line)) and (after_blank or in_item or line[0] in "-*")
        number += 1


def prose(page: Path) -> str:
    """The page without its code."""
    text = page.read_text("utf-8")
    for block in blocks(page):
        text = text.replace(block.text, "")
    return re.sub(r"`[^`\n]*`", "", text)


def links(page: Path) -> list[str]:
    """Where the page's links and pictures lead to, the internet left out."""
    found = _LINK.findall(prose(page))
    return [each for each in found if not each.startswith(("https://", "http://", "mailto:"))]


def anchors(page: Path) -> set[str]:
    """What a link may name behind #, as the site makes it of headings."""
    text = page.read_text("utf-8")
    for block in blocks(page):
        text = text.replace(block.text, "")
    return {slugify(title.replace("`", ""), "-") for title in _HEADING.findall(text)}


def usages() -> frozenset[str]:
    """The grammar of our commands as reference pages show it: no command to type."""
    sections = (command_sections(parser) for parser in (make_parser(), make_replay_parser()))
    return frozenset(
        line.strip() for section in sections for line in section if line.startswith("    ")
    )


def commands(page: Path) -> Iterator[Command]:
    """Every command of the page's shell blocks. Raises ValueError for a quote that never ends."""
    grammar = usages()
    for block in blocks(page):
        if block.language in SHELL and block.text not in grammar and _is_shell(block):
            text = block.text.replace("\\\n", " ")
            for line in text.splitlines():
                for inner in _SUBSTITUTED.findall(line):
                    yield from _split(block, inner)
                yield from _split(block, _SUBSTITUTED.sub("SUBSTITUTED", line))


def inline_commands(page: Path) -> Iterator[Command]:
    """Every command between backticks; in a table its pipes are escaped."""
    text = page.read_text("utf-8")
    for found in _INLINE.finditer(text):
        line = found[1].replace("\\|", "|")
        yield from _split(Block(page, text.count("\n", 0, found.start()) + 1, "sh", line), line)


def _is_shell(block: Block) -> bool:
    """A block without a language may hold anything: it counts if a program of ours starts it."""
    first = block.text.split(maxsplit=1)[0] if block.text.strip() else ""
    return bool(block.language) or first in STARTERS


STARTERS = (
    "docker",
    "eval",
    "evictune",
    "evictune-replay",
    "helm",
    "kubectl",
    "make",
    "pip",
    "python",
)


def _split(block: Block, line: str) -> Iterator[Command]:
    """The commands of a line, at pipes and the like; where output goes is no argument."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>()")
    lexer.whitespace_split, lexer.commenters = True, "#"
    words: list[str] = []
    redirected = False
    for word in _words(lexer, block, line):
        if set(word) <= _OPERATORS:
            redirected = word[0] in "<>"
            if not redirected and words:
                yield Command(block, tuple(words))
                words = []
        elif redirected:
            redirected = False
        else:
            words.append(word)
    if words:
        yield Command(block, tuple(words))


def _words(lexer: shlex.shlex, block: Block, line: str) -> Iterator[str]:
    try:
        yield from lexer
    except ValueError as error:
        raise ValueError(f"{block}: {line}: {error}") from error
