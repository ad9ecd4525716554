"""Prometheus's HTTP API, as far as a dashboard needs it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import requests

_SECONDS = 30.0
_EXCERPT = 200

Labels = Mapping[str, str]
T = TypeVar("T")


class StoreError(Exception):
    """The store cannot be used at all; the message names its address, in one line."""


class QueryError(Exception):
    """The store refused this query; the message is its own."""


@dataclass(frozen=True)
class Range:
    """A span of time, in seconds since the epoch, looked at every `step` seconds."""

    start: float
    end: float
    step: float


@dataclass(frozen=True)
class Series:
    """Labels and samples: (seconds since the epoch, value)."""

    labels: Labels
    samples: Sequence[tuple[float, float]]


class Store:
    """A Prometheus-compatible store. url: what its API's paths, /api/v1/..., follow."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self._session = requests.Session()

    def over(self, query: str, span: Range) -> list[Series]:
        """The values over a range. Raises QueryError, StoreError."""
        asked = {"query": query, "start": span.start, "end": span.end, "step": span.step}
        return self._ask(
            "query_range",
            asked,
            lambda data: [
                Series(dict(each["metric"]), _samples(each["values"])) for each in data["result"]
            ],
        )

    def at(self, query: str, time: float) -> list[Series]:
        """The values at one time. Raises QueryError, StoreError."""
        return self._ask("query", {"query": query, "time": time}, _instant)

    def label_values(self, series: str, label: str, span: Range) -> list[str]:
        """The values that a label has in these series. Raises QueryError, StoreError."""
        asked = {"match[]": series, "start": span.start, "end": span.end}
        return self._ask(
            "series", asked, lambda found: sorted({each[label] for each in found if label in each})
        )

    def _ask(self, path: str, asked: Mapping[str, object], read: Callable[[Any], T]) -> T:
        """What `read` makes of the answer's data."""
        try:
            answer = self._session.post(f"{self._url}/api/v1/{path}", data=asked, timeout=_SECONDS)
        except requests.Timeout as error:
            raise StoreError(f"{self._url} gave no answer within {_SECONDS:g} s") from error
        except (requests.RequestException, ValueError) as error:
            # ValueError: a host that cannot be a name.
            raise StoreError(f"{self._url}: {_cause(error)}") from error
        try:
            body = answer.json()
            if body["status"] == "success":
                return read(body["data"])
            refused = body["status"] == "error"
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            refused = False
        if refused:
            raise QueryError(str(body.get("error", "refused without a word")))
        raise StoreError(
            f"{self._url} answers with status {answer.status_code} and not as Prometheus's API "
            f"does: {' '.join(answer.text.split())[:_EXCERPT]!r}"
        )


def _instant(data: Any) -> list[Series]:
    """A scalar's value is the result itself."""
    if data["resultType"] == "scalar":
        return [Series({}, _samples([data["result"]]))]
    return [Series(dict(each["metric"]), _samples([each["value"]])) for each in data["result"]]


def _samples(values: Sequence[Sequence[Any]]) -> list[tuple[float, float]]:
    """Those that can be drawn: NaN and infinite values cannot."""
    samples = ((float(time), float(value)) for time, value in values)
    return [(time, value) for time, value in samples if math.isfinite(value)]


def _cause(error: BaseException) -> str:
    """The innermost cause: what wraps it repeats the whole request."""
    inner: BaseException | None = error
    found = type(error).__name__
    while inner is not None:
        if isinstance(inner, OSError) and inner.strerror:
            return inner.strerror
        found = str(inner) if isinstance(inner, requests.exceptions.InvalidURL) else found
        inner = inner.__cause__ or inner.__context__
    return found
