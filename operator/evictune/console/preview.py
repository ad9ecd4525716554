"""`evictune dashboards preview`: the dashboards with a store's data, as one file."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import TextIO
from urllib.parse import urlsplit

from evictune.api.quantity import FieldError, parse_duration
from evictune.api.times import parse_time
from evictune.console.refusals import RefusedError, UsageError
from evictune.preview.answers import fill
from evictune.preview.boards import NAMES, load
from evictune.preview.chosen import MissingValueError
from evictune.preview.page import Result, page
from evictune.preview.store import QueryError, Range, Store, StoreError

_POINTS = 240
_SHOWN = 10
_PATIENCE = 2.0
_APART = 5.0


def preview(options: Namespace) -> None:
    """Write the page and say what is in it. Raises UsageError, RefusedError."""
    url, span, scrape = _url(options.prometheus), _span(options), _scrape(options)
    wanted = {"namespace": options.namespace, "policy": options.policy}
    store = Store(url)
    try:
        filled = fill(
            load(options.dashboards or NAMES),
            store,
            span,
            scrape,
            {name: value for name, value in wanted.items() if value is not None},
            Progress(sys.stderr, time.monotonic).told,
        )
    except StoreError as error:
        raise RefusedError(
            f"--prometheus: {error}; give the address before /api/v1, such as "
            "http://127.0.0.1:9090 after kubectl port-forward"
        ) from error
    except QueryError as error:
        raise RefusedError(f"--prometheus: {url} refused a query: {error}") from error
    except MissingValueError as error:
        raise RefusedError(_missing(error)) from error
    result = page(filled, url)
    _write(options.out, result.html)
    _tell(options.out, result)


def _url(text: str) -> str:
    try:
        parts = urlsplit(text)
    except ValueError:
        parts = urlsplit("")
    if "@" in parts.netloc or parts.query or parts.fragment:
        # Not repeated: the page names its store, and is made to be passed on.
        raise UsageError(
            "--prometheus: an address with a user, a password or a query would stand in the file: "
            "leave them out, and reach a store that asks for them through a proxy of yours"
        )
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(
            f"--prometheus {text!r} is no address: write http://HOST:PORT, as a browser has it"
        )
    return text


def _span(options: Namespace) -> Range:
    try:
        end = time.time() if options.end is None else parse_time(options.end)
    except ValueError as error:
        raise UsageError(
            f"--end {options.end!r} is no time: write it as 2026-11-29T12:00:00Z"
        ) from error
    last = _seconds("--last", options.last)
    if not last:
        raise UsageError("--last '0s' shows nothing: write a duration such as 3h")
    step = max(last / _POINTS, _scrape(options))
    # Whole steps, as Grafana does it: the same samples whenever it is asked.
    whole = end // step * step
    start = whole - max(last // step, 1) * step
    if not 0 <= start < whole:
        until = "" if options.end is None else f" with --end {options.end!r}"
        raise UsageError(
            f"--last {options.last!r}{until} begins before 1970: write less, such as 3h"
        )
    return Range(start, whole, step)


def _seconds(flag: str, text: str) -> float:
    try:
        return parse_duration(flag, text)
    except FieldError as error:
        raise UsageError(str(error)) from error


def _scrape(options: Namespace) -> float:
    seconds = _seconds("--scrape-interval", options.scrape_interval)
    if seconds < 1:
        raise UsageError(
            f"--scrape-interval {options.scrape_interval!r} is too short: write at least 1s"
        )
    return seconds


def _missing(error: MissingValueError) -> str:
    if not error.known:
        return (
            f"--{error.variable} {error.value!r}: the store has no series of any {error.variable} "
            "in this time: is the operator's port metrics scraped? Else lengthen --last"
        )
    known = ", ".join(error.known[:_SHOWN])
    more = f" and {len(error.known) - _SHOWN} more" if len(error.known) > _SHOWN else ""
    other = "; choose its namespace with -n" if error.variable == "policy" else ""
    return f"--{error.variable} {error.value!r} is not in the store: it has {known}{more}{other}"


def _write(file: str, html: str) -> None:
    try:
        Path(file).write_text(html, "utf-8")
    except OSError as error:
        raise RefusedError(
            f"--out {file}: {error.strerror or error}; name a file in a directory that you may "
            "write to"
        ) from error


def _tell(file: str, result: Result) -> None:
    """What was written. Raises RefusedError where a query was refused."""
    print(f"{file}: {result.panels} panels")
    if result.without_data:
        print(f"{len(result.without_data)} without data: {'; '.join(result.without_data)}")
    if result.refused:
        raise RefusedError(
            f"queries of {len(result.refused)} panels were refused; the page says why: "
            f"{'; '.join(result.refused)}"
        )


class Progress:
    """A line on `stream` every few seconds, once it takes longer than two."""

    def __init__(self, stream: TextIO, clock: Callable[[], float]) -> None:
        self._stream = stream
        self._clock = clock
        self._next = clock() + _PATIENCE

    def told(self, done: int, all_of: int) -> None:
        """So many queries are answered."""
        if self._clock() >= self._next and done < all_of:
            print(f"{done} of {all_of} queries answered", file=self._stream, flush=True)
            self._next = self._clock() + _APART
