"""Instant queries to a Prometheus-compatible store, with the client library's habits changed.

prometheus-api-client retries with back-off behind the caller's back, has no time limit, joins a
trailing slash wrongly, drops the result's type and warnings, and reports a refusal as a traceback
of bytes. Here it asks once, within a limit; what comes back is checked before the library sees it;
and what went wrong is told in one line that holds no header, token or query.

No time is sent: the store evaluates at its own, whatever the operator's clock says.
"""

from __future__ import annotations

import io
import math
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import requests
from prometheus_api_client import PrometheusConnect
from urllib3.exceptions import HTTPError, ReadTimeoutError
from urllib3.util.retry import Retry

from evictune.api.sources import SourceDefinition
from evictune.observe.credentials import CredentialError, Credentials, tls_cause

_EXCERPT = 120
_CHUNK = 64 * 2**10
_CREDENTIALS = "check the source's headers, basicAuth, bearerTokenFile and certFile"
_HINTS: Mapping[int, str] = {
    400: "check the source's url, headers and parameters",
    401: _CREDENTIALS,
    403: _CREDENTIALS,
    404: "check the path of the source's url",
    429: "the store limits how often it may be asked: raise the policies' behavior.interval",
}

Series = Mapping[str, Any]


class AccessError(Exception):
    """The store did not answer, or refused: no query of this round will fare better."""


class AnswerError(Exception):
    """The store answered this query, but not with a vector."""


class _Deadline(threading.local):
    """When the query of this thread must be answered, seconds of the monotonic clock."""

    at = math.inf


class PrometheusClient:
    """Blocking queries to one source; safe to use from several threads."""

    def __init__(self, definition: SourceDefinition) -> None:
        self._definition = definition
        self._credentials = Credentials(definition)
        self._deadline = _Deadline()
        session = requests.Session()
        # Headers, tenant and token are for the administrator's address alone.
        session.max_redirects = 0
        session.verify = definition.ca_file or True
        if definition.cert_file and definition.key_file:
            session.cert = (definition.cert_file, definition.key_file)
        session.hooks["response"].append(self._check)
        self._connect = PrometheusConnect(
            url=definition.url.rstrip("/"),
            headers=dict(definition.headers),
            session=session,
            retry=Retry(total=0, read=False),
            auth=self._credentials,
        )

    def vector(self, query: str, timeout: float) -> Sequence[Series]:
        """The result of an instant query, each with `metric` and `value`.

        Raises AccessError, or AnswerError where only this query is at fault.
        """
        try:
            self._deadline.at = time.monotonic() + timeout
            self._credentials.check_files()
            result: Sequence[Series] = self._connect.custom_query(
                query, params=dict(self._definition.parameters), timeout=timeout
            )
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
        except CredentialError as error:
            raise AccessError(f"{self.place}: {error}") from None
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
        self._receive(response)
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
        self._require_whole(body)
        # The library reads the same text once more: the answer about a fleet is megabytes long.
        response.json = lambda **_: body  # type: ignore[method-assign]
        kind, result = data.get("resultType"), data["result"]
        if kind != "vector" or not isinstance(result, list | None):
            raise AnswerError(f"{self.place} answers with a {kind}, not with a vector")

    def _receive(self, response: requests.Response) -> None:
        """Read the answer within the time that is left: requests limits the time between bytes."""
        body = bytearray()
        try:
            while chunk := response.raw.read1(_CHUNK, decode_content=True):
                body += chunk
                if time.monotonic() > self._deadline.at:
                    raise requests.Timeout
        except ReadTimeoutError:
            raise requests.Timeout from None
        except HTTPError as error:
            raise AccessError(
                f"{self.place} broke its answer off: {type(error).__name__}"
            ) from None
        response.raw = io.BytesIO(bytes(body))

    def _require_whole(self, body: Mapping[str, Any]) -> None:
        """Refuse what a store or gateway itself calls incomplete, such as Thanos' partial answers.

        Prometheus warns where it leaves elements out. (Its `infos` tell of style.)
        """
        warnings = body.get("warnings")
        if warnings:
            told = "; ".join(map(str, warnings)) if isinstance(warnings, list) else str(warnings)
            raise AnswerError(f"{self.place} answers in part only: {self._told(told)}")

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
        for secret in filter(None, self._credentials.secrets()):
            text = text.replace(secret, "***")
        return repr(" ".join(text.split())[:_EXCERPT])


def _cause(error: BaseException) -> str:
    """The innermost cause in words: what wraps it repeats the query."""
    if isinstance(error, requests.exceptions.SSLError):
        return tls_cause(error)
    inner: BaseException | None = error
    while inner is not None:
        if isinstance(inner, OSError) and inner.strerror:
            name = f"{inner.filename}: " if inner.filename else ""
            return f"{name}{inner.strerror}"
        inner = inner.__cause__ or inner.__context__
    return type(error).__name__
