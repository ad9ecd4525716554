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
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec
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
T = TypeVar("T")
_NULL = msgspec.Raw(b"null")


class _Data(msgspec.Struct, rename="camel"):
    """What an answer tells. The result's elements stay text until they are looked at, one by one:
    those of a fleet are a hundred thousand, and all of them at once fill hundreds of megabytes."""

    result: msgspec.Raw
    result_type: object = None


class _Body(msgspec.Struct):
    """An answer, as far as it is one of Prometheus's API."""

    status: object = None
    error: object = None
    warnings: object = None
    data: msgspec.Raw = _NULL


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

    def vector(self, query: str, timeout: float) -> Iterable[Series]:
        """The result of an instant query, each with `metric` and `value`; to go through once.

        Raises AccessError, or AnswerError where only this query is at fault.
        """
        try:
            self._deadline.at = time.monotonic() + timeout
            self._credentials.check_files()
            result: Iterable[Series] = self._connect.custom_query(
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
        return result

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
        text = self._receive(response)
        body = _decoded(text, _Body) or _Body()
        if response.status_code in (400, 422) and body.error is not None:
            raise AnswerError(f"{self.place} cannot answer: {self._told(str(body.error))}")
        if response.status_code != 200:
            hint = _HINTS.get(response.status_code, "")
            raise AccessError(
                f"{self.place} answers with status {response.status_code}: "
                f"{self._told(response.text)}{hint and '; '}{hint}"
            )
        data = _decoded(body.data, _Data)
        if body.status != "success" or data is None:
            raise AccessError(
                f"{self.place} does not speak Prometheus's API: {self._told(response.text)}"
            )
        self._require_whole(body.warnings)
        # Some stores written in Go answer null for an empty list.
        elements = _decoded(data.result, list[msgspec.Raw]) if data.result != _NULL else []
        if data.result_type != "vector" or elements is None:
            raise AnswerError(f"{self.place} answers with a {data.result_type}, not with a vector")
        # Nobody needs the text as well: the library takes what is given here.
        response.raw = io.BytesIO()
        result = map(self._element, elements)
        response.json = lambda **_: {"data": {"result": result}}  # type: ignore[method-assign]

    def _receive(self, response: requests.Response) -> bytes:
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
        text = bytes(body)
        response.raw = io.BytesIO(text)
        return text

    def _element(self, text: msgspec.Raw) -> Series:
        """One series. Raises AnswerError."""
        try:
            found: Series = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError) as error:
            raise AnswerError(f"{self.place}: an element cannot be read: {error}") from None
        return found

    def _require_whole(self, warnings: object) -> None:
        """Refuse what a store or gateway itself calls incomplete, such as Thanos' partial answers.

        Prometheus warns where it leaves elements out. (Its `infos` tell of style.)
        """
        if warnings:
            told = "; ".join(map(str, warnings)) if isinstance(warnings, list) else str(warnings)
            raise AnswerError(f"{self.place} answers in part only: {self._told(told)}")

    def _told(self, text: str) -> str:
        """The first bytes of an answer, without any secret that it may repeat."""
        for secret in filter(None, self._credentials.secrets()):
            text = text.replace(secret, "***")
        return repr(" ".join(text.split())[:_EXCERPT])


def _decoded(text: bytes | msgspec.Raw, kind: type[T]) -> T | None:
    """None where the text is not JSON of this kind."""
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, RecursionError):
        return None


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
