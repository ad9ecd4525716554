"""A page in the Prometheus text format, as samples. Parsed by prometheus_client, not by hand."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import TypeVar

from prometheus_client.parser import text_string_to_metric_families

# A page up to so many characters is read within a few milliseconds: a thread costs about as much.
_SHORT = 16 * 2**10
# A line of more characters is not remembered: a page may be one of megabytes.
_SHORT_LINE = 1000

T = TypeVar("T")


class ExpositionError(ValueError):
    """What was served is not the Prometheus text format."""


@dataclass(frozen=True)
class Sample:
    """One line of a page. The value may be NaN or infinite: the format allows it."""

    name: str
    labels: Mapping[str, str]
    value: float


async def read_page(text: str, read: Callable[[str], T]) -> T:
    """What `read` makes of a page: in a thread if it is long, so that it holds up no other policy.

    Raises what `read` raises.
    """
    return read(text) if len(text) <= _SHORT else await asyncio.to_thread(read, text)


def parse(text: str, names: Collection[str]) -> list[Sample]:
    """The samples whose name is among `names`, in the page's order. Raises ExpositionError.

    Nine in ten lines of an engine's page are of no interest, and the parser goes through a page
    letter by letter: it is given the others, or all of them if there are none, to find a fault.
    """
    if text and not text.endswith("\n"):
        # The format ends its last line with a line feed too, and the cut may be anywhere.
        raise _no_page("its last line has no end: it was cut off", text)
    lines = _lines(frozenset(names)).findall(text) or [text]
    try:
        found = (_of_short(line) if len(line) <= _SHORT_LINE else _samples(line) for line in lines)
        return [sample for samples in found for sample in samples if sample.name in names]
    except (ValueError, IndexError, KeyError) as error:
        # The parser answers other formats, such as a proxy's HTML, with any of the three.
        raise _no_page(error, text) from None


def _no_page(problem: object, text: str) -> ExpositionError:
    start = " ".join(text[:60].split())
    return ExpositionError(
        f"not the Prometheus text format: {problem}; the page begins with {start!r}"
    )


def _samples(text: str) -> tuple[Sample, ...]:
    """The samples of one line or of many."""
    return tuple(
        Sample(sample.name, MappingProxyType(sample.labels), float(sample.value))
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    )


# From look to look, and from engine to engine, most lines are the same: labels and zeros.
_of_short = lru_cache(maxsize=4096)(_samples)


@lru_cache
def _lines(names: frozenset[str]) -> re.Pattern[str]:
    """Finds the lines of samples with these names."""
    return re.compile(
        rf"^[ \t]*(?:{'|'.join(map(re.escape, sorted(names)))})[ \t{{].*$", re.MULTILINE
    )
