"""Numbers as Grafana's units show them: those that the dashboards use."""

from __future__ import annotations

import math
import time

_SECONDS = ((86400, " days"), (3600, " hours"), (60, " min"), (1, " s"), (1e-3, " ms"), (0, " µs"))
_THOUSANDS = ((1e9, " Bil"), (1e6, " Mil"), (1e3, " K"))
_SUFFIX = "suffix:"
# What three digits round up to the next unit is shown in that: 1 ms, not 1000 µs.
_ROUNDED_UP = 0.9995


def shown(value: float, unit: str, now: float | None = None) -> str:
    """The value in words. now: seconds since the epoch, for how long ago something was."""
    match unit:
        case "s":
            return _seconds(value)
        case "percentunit":
            return f"{_digits(value * 100)}%"
        case "dateTimeFromNow":
            return _ago((time.time() if now is None else now) - value / 1000)
        case _ if unit.startswith(_SUFFIX):
            return _number(value) + unit.removeprefix(_SUFFIX)
        case _:
            return _number(value)


def ticks(low: float, high: float, unit: str, wanted: int = 4) -> list[float]:
    """Round numbers from at most `low` to at least `high`: 1, 2 or 5 times a power of ten."""
    span = high - low or 1.0
    if unit == "s" and span > 60:
        steps = [float(s * f) for f in (60, 3600, 86400) for s in (1, 2, 5, 10, 15, 30)]
        step = next((each for each in steps if span / each <= wanted), span)
    else:
        size = 10.0 ** math.floor(math.log10(span / wanted))
        step = next(f * size for f in (1, 2, 5, 10) if span / (f * size) <= wanted)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [number * step for number in range(first, max(last, first + 1) + 1)]


def _seconds(value: float) -> str:
    if value == 0:
        return "0 s"
    size, name = next(each for each in _SECONDS if abs(value) >= each[0] * _ROUNDED_UP)
    return f"{_digits(value / (size or 1e-6))}{name}"


def _number(value: float) -> str:
    for size, name in _THOUSANDS:
        if abs(value) >= size * 10:
            return f"{_digits(value / size)}{name}"
    return _digits(value)


def _digits(value: float) -> str:
    """Three digits that count, without zeros at the end, and never as a power of ten."""
    if value == 0:
        return "0"
    places = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:.{min(places, 9)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _ago(seconds: float) -> str:
    for size, name in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size:
            count = round(seconds / size)
            return f"{count} {name}{'s' if count > 1 else ''} ago"
    return f"{max(0, round(seconds))} s ago"
