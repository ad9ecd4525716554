"""What may stand on the command line: each value checked, each refusal with its remedy."""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Callable
from typing import NoReturn

from evictune_policies.algorithms.catalog import POLICIES, Cost

MAX_TOKENS = 10_000_000
"""Of xi and q_hat: what the engine plugin takes."""
MAX_BLOCKS = 100_000_000
MAX_SECONDS = 1e9
"""Of a duration: 31 years."""
LEAST_COST, MOST_COST = 1e-15, 1e3
"""Of a token's prefill, in seconds: from far below any hardware's to far above it."""

_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that complains in one line: flag, value, remedy."""

    def error(self, message: str) -> NoReturn:
        """Exit with code 2."""
        text = message.removeprefix("argument ")
        self.exit(2, f"evictune-replay: {text}; see {self.prog} --help\n")


def whole_numbers(least: int, most: int, example: str) -> Callable[[str], tuple[int, ...]]:
    """Of a comma-separated list of whole numbers, such as 3000,10000, ascending, each once."""

    def parse(text: str) -> tuple[int, ...]:
        return tuple(sorted({_whole(part, least, most, example) for part in text.split(",")}))

    return parse


def whole_number(least: int, most: int, example: str) -> Callable[[str], int]:
    """Of one whole number."""
    return lambda text: _whole(text, least, most, example)


def _whole(text: str, least: int, most: int, example: str) -> int:
    # int() alone would take 1_000, a sign, and digits of any script.
    if not re.fullmatch(r"[0-9]{1,18}", text.strip()):
        _refuse(f"{text!r} is not a whole number of at least {least}: write {example}")
    value = int(text)
    if not least <= value <= most:
        _refuse(f"{value} is out of range: write {least} to {most:,}, such as {example}")
    return value


def numbers(least: float, example: str) -> Callable[[str], tuple[float, ...]]:
    """Of a comma-separated list of numbers, ascending, each once."""

    def parse(text: str) -> tuple[float, ...]:
        values = {_number(part, example) for part in text.split(",")}
        for value in values:
            if value < least:
                _refuse(f"{value:g} is less than {least:g}: write {example}")
            if value > MAX_SECONDS:
                _refuse(f"{value:g} is more than {MAX_SECONDS:g}: write {example}")
        return tuple(sorted(values))

    return parse


def positive(example: str) -> Callable[[str], float]:
    """Of one number above zero."""

    def parse(text: str) -> float:
        value = _number(text, f"such as {example}")
        if value <= 0:
            _refuse(f"{text} is not above 0: write a number such as {example}")
        if not 1 / MAX_SECONDS <= value <= MAX_SECONDS:
            _refuse(
                f"{text} is out of range: write {1 / MAX_SECONDS:g} to {MAX_SECONDS:g}, "
                f"such as {example}"
            )
        return value

    return parse


def _number(text: str, example: str) -> float:
    try:
        value = float(text)
    except ValueError:
        _refuse(f"{text!r} is not a number: write {example}")
    if not math.isfinite(value):
        _refuse(f"{text!r} is not a finite number: write {example}")
    return value


def policies(text: str) -> tuple[str, ...]:
    """Of a comma-separated list of policies' names, in the order given, each once."""
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    for name in names:
        if name not in POLICIES:
            _refuse(f"{name!r} is not a policy: `evictune-replay policies` lists them")
    return names


def duration(text: str) -> float:
    """Of a duration such as 800ms, in seconds."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(us|ms|s|m)", text.strip())
    if match is None:
        _refuse(f"{text!r} is not a duration: write a number with us, ms, s or m, such as 800ms")
    seconds = float(match[1]) * _UNITS[match[2]]
    if seconds <= 0:
        _refuse(f"{text!r} is no time at all: write a duration above zero, such as 800ms")
    if seconds > MAX_SECONDS:
        _refuse(f"{text!r} is out of range: write at most {MAX_SECONDS:.0f}s, such as 800ms")
    return seconds


def quantile(text: str) -> float:
    """Of a quantile between 0 and 1, both excluded."""
    value = _number(text, "such as 0.99")
    if not 0 < value < 1:
        _refuse(f"{text} is not between 0 and 1: write a quantile such as 0.99 for the p99")
    return value


def prefill_cost(text: str) -> Cost:
    """Of SECONDS_PER_TOKEN[,QUADRATIC]."""
    example = "SECONDS_PER_TOKEN[,QUADRATIC], such as 0.0001 or 0.0001,2e-9"
    parts = [_number(part, example) for part in text.split(",")]
    if len(parts) > 2:
        _refuse(f"{text!r} has {len(parts)} numbers: write {example}")
    if min(parts) < 0 or max(parts) <= 0:
        _refuse(f"{text!r}: neither may be negative, and one has to be above 0: write {example}")
    if any(part and not LEAST_COST <= part <= MOST_COST for part in parts):
        _refuse(f"{text!r} is out of range, {LEAST_COST:g} to {MOST_COST:g}: write {example}")
    return Cost(*parts)


def _refuse(message: str) -> NoReturn:
    raise argparse.ArgumentTypeError(message)


def complain(error: object) -> int:
    """Say what was wrong with usage or input, in one line; the exit code for it."""
    text = " ".join(str(error).split()) or type(error).__name__
    print(f"evictune-replay: {text}", file=sys.stderr)
    return 2
