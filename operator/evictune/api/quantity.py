"""Quantities and durations as the API writes them: strings, never floats.

Kubernetes API conventions ask for no floating-point fields; "0.92" and "800ms" survive every
client's round trip unchanged.
"""

from __future__ import annotations

import re
from decimal import Decimal

DECIMAL_PATTERN = r"^[0-9]+(\.[0-9]+)?$"
DURATION_PATTERN = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$"

_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)")
_SECONDS = {"ms": Decimal("0.001"), "s": Decimal(1), "m": Decimal(60), "h": Decimal(3600)}


class FieldError(ValueError):
    """A field that cannot be used: names the field, the value and the remedy."""

    def __init__(self, field: str, value: object, remedy: str) -> None:
        super().__init__(f"{field}: {value!r} cannot be used: {remedy}")
        self.field = field
        self.value = value
        self.remedy = remedy


def parse_decimal(field: str, text: object) -> Decimal:
    """A non-negative decimal such as "0.92". Raises FieldError."""
    if not isinstance(text, str) or not re.match(DECIMAL_PATTERN, text):
        raise FieldError(field, text, 'write a decimal number as a string, such as "0.92"')
    return Decimal(text)


def parse_duration(field: str, text: object) -> float:
    """Seconds of a duration such as "800ms", "10m" or "1h30m". Raises FieldError."""
    if not isinstance(text, str) or not re.match(DURATION_PATTERN, text):
        raise FieldError(field, text, 'write a duration with its unit, such as "800ms" or "10m"')
    parts = _DURATION_PART.findall(text)
    return float(sum((Decimal(number) * _SECONDS[unit] for number, unit in parts), Decimal(0)))


def format_duration(seconds: float) -> str:
    """The shortest text for a duration: "800ms", "1.25s", "10m", "1h"."""
    if seconds < 1:
        return f"{round(seconds * 1000)}ms"
    for unit, size in (("h", 3600), ("m", 60)):
        if seconds >= size and seconds % size == 0:
            return f"{int(seconds // size)}{unit}"
    return f"{round(seconds, 3):g}s"


def format_span(seconds: float) -> str:
    """A duration for people: its two largest units at most."""
    for size, unit, below, small in (
        (86400, "d", 3600, "h"),
        (3600, "h", 60, "m"),
        (60, "m", 1, "s"),
    ):
        if seconds >= size:
            rest = int(seconds % size // below)
            return f"{int(seconds // size)}{unit}" + (f"{rest}{small}" if rest else "")
    return f"{int(seconds)}s"


def format_fraction(fraction: Decimal) -> str:
    """The shortest text for a share: "0.9", never "0.90" nor "9E-1"."""
    return format(fraction.normalize(), "f")
