"""Instant queries to a Prometheus-compatible store, with the client library's habits changed.

prometheus-api-client retries with back-off behind the caller's back, has no time limit, joins a
trailing slash wrongly, drops the result's type and reports a refusal as a traceback of bytes. Here
it asks once, within a limit; what comes back is checked before the library sees it; and what went
wrong is told in one line that holds no header, token or query.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import requests
from prometheus_api_client import PrometheusConnect
from requests.auth import AuthBase
from urllib3.util.retry import Retry

from evictune.api.sources import SourceDefinition

_EXCERPT = 120
_HINTS: Mapping[int, str] = {
    401: "check the source's headers and bearerTokenFile",
    403: "check the source's headers and bearerTokenFile",
    404: "check the path of the source's url",
}

Series = Mapping[str, Any]


class AccessError(Exception):
    """The store did not answer, or refused: no query of this round will fare better."""


class AnswerError(Exception):
    """The store answered this query, but not with a vector."""


class PrometheusClient:
    """Blocking queries to one source; safe to use from several threads."""

    def __init__(self, definition: SourceDefinition) -> None:
        self._definition = definition
        session = requests.Session()
        # Headers, tenant and token are for the administrator's address alone.
        session.max_redirects = 0
        session.verify = definition.ca_file or True
        session.hooks["response"].append(self._check)
        self._connect = PrometheusConnect(
            url=definition.url.rstrip("/"),
            headers=dict(definition.headers),
            session=session,
            retry=Retry(total=0, read=False),
            auth=_Bearer(definition.bearer_token_file) if definition.bearer_token_file else None,
        )

    def vector(self, query: str, timeout: float) -> Sequence[Series]:
        """The result of an instant query, each with `metric` and `value`.

        Raises AccessError, or AnswerError where only this query is at fault.
        """
        try:
            result: Sequence[Series] = self._connect.custom_query(query, timeout=timeout)
        except requests.TooManyRedirects as error:
            place = error.response.headers.get("Location", "") if error.response is not None else ""
            target = place.partition("?")[0]
            raise AccessError(f"{self.place} redirects to {target}: set url to that") from None
        except requests.Timeout:
            raise AccessError(
                f"{self.place} gave no answer within {self._definition.timeout:g} s"
            ) from None
        except OSError as error:  # requests' own errors, and files that cannot be read
            raise AccessError(f"{self.place}: {_cause(error)}") from None
        except UnicodeError:
            # The token's text is not repeated.
            raise AccessError(f"{self.place}: bearerTokenFile does not hold a token") from None
        # Some stores written in Go answer null for an empty list.
        return result or []

    def close(self) -> None:
        """Close the connections."""
        self._connect.close()

    @property
    def place(self) -> str:
        """The source by name and address, for messages."""
        return f"source {self._definition.name!r} ({self._definition.url})"

    def _check(self, response: requests.Response, **_: object) -> None:
        """Called by requests with every answer, before the library reads it."""
        if response.is_redirect:
            return
        body = self._body(response)
        if response.status_code in (400, 422) and "error" in body:
            raise AnswerError(f"{self.place} cannot answer: {self._told(str(body['error']))}")
        if response.status_code != 200:
            hint = _HINTS.get(response.status_code, "")
            raise AccessError(
                f"{self.place} answers with status {response.status_code}: "
                f"{self._told(response.text)}{hint and '; '}{hint}"
            )
        data = body.get("data")
        if body.get("status") != "success" or not isinstance(data, dict) or "result" not in data:
            raise AccessError(
                f"{self.place} does not speak Prometheus's API: {self._told(response.text)}"
            )
        kind, result = data.get("resultType"), data["result"]
        if kind != "vector" or not isinstance(result, list | None):
            raise AnswerError(f"{self.place} answers with a {kind}, not with a vector")

    @staticmethod
    def _body(response: requests.Response) -> Mapping[str, Any]:
        """The answer's JSON object; empty where it is none."""
        try:
            body = response.json()
        except requests.JSONDecodeError:
            return {}
        return body if isinstance(body, dict) else {}

    def _told(self, text: str) -> str:
        """The first bytes of an answer, without any secret that it may repeat."""
        for secret in self._secrets():
            text = text.replace(secret, "***")
        return repr(" ".join(text.split())[:_EXCERPT])

    def _secrets(self) -> Iterator[str]:
        yield from filter(None, self._definition.headers.values())
        if self._definition.bearer_token_file:
            yield _token(self._definition.bearer_token_file)


class _Bearer(AuthBase):
    """A token read anew for every request: projected tokens are rotated."""

    def __init__(self, file: str) -> None:
        self._file = file

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {_token(self._file)}"
        return request


def _token(file: str) -> str:
    return Path(file).read_text("utf-8").strip()


def _cause(error: BaseException) -> str:
    """The innermost cause in words: what wraps it repeats the query."""
    if isinstance(error, requests.exceptions.SSLError):
        return "the certificate is not trusted: check the source's caFile"
    inner: BaseException | None = error
    while inner is not None:
        if isinstance(inner, OSError) and inner.strerror:
            name = f"{inner.filename}: " if inner.filename else ""
            return f"{name}{inner.strerror}"
        inner = inner.__cause__ or inner.__context__
    return type(error).__name__
