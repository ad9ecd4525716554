"""The API server as one small client: JSON in, JSON out, a time limit on every call.

The only place that builds a connection to Kubernetes. Requests go through the official client's
transport (TLS, tokens and their rotation) with plain dictionaries: server-side apply and status
patches need exact content types, which the generated methods choose for themselves.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
import urllib3
import yaml
from kubernetes import client, config

from evictune.api.policy import GROUP, PLURAL, VERSION

MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
FIELD_MANAGER = "evictune"
USER_AGENT = "evictune"

CONNECT_TIMEOUT = 3.0
READ_TIMEOUT = 10.0
PAGE_SIZE = 500
# Tokens are rotated long before they expire: so often is looked for a new one, seconds.
TOKEN_LOOK_INTERVAL = 5.0
# How urllib3 and the client begin their messages.
_LIBRARY = re.compile(r"^(\(\d+\) )?(Reason: )?(<[^>]*>|HTTPS?Connection(Pool)?\([^)]*\)): ")

log = logging.getLogger(__name__)


class ApiError(Exception):
    """The API server refused, or could not be reached (status 0).

    `reason` is the API's own word ("Conflict", "NotFound", "Forbidden"); `causes` its details.
    """

    def __init__(
        self, status: int, reason: str, message: str, causes: tuple[Mapping[str, str], ...] = ()
    ) -> None:
        super().__init__(f"{reason} ({status}): {message}" if status else message)
        self.status = status
        self.reason = reason
        self.causes = causes


def load_configuration(kubeconfig: str | None, context: str | None = None) -> client.Configuration:
    """Settings of the connection: the kubeconfig given, else the pod's service account, else
    the usual kubeconfig ($KUBECONFIG, ~/.kube/config); its current context or the one given.

    Raises kubernetes.config.ConfigException.
    """
    configuration = client.Configuration()
    if kubeconfig is None and context is None:
        try:
            config.load_incluster_config(client_configuration=configuration)
            return looking_seldom(configuration)
        except config.ConfigException:
            pass  # Not in a pod.
    try:
        config.load_kube_config(kubeconfig, context, client_configuration=configuration)
    except (yaml.YAMLError, ValueError, TypeError, AttributeError, LookupError) as error:
        # The library walks the file without looking: what is no kubeconfig ends in any of these.
        shown = kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config"
        problem = " ".join(str(error).split())
        raise config.ConfigException(f"{shown} is not a kubeconfig: {problem}") from error
    return looking_seldom(configuration)


def looking_seldom(
    configuration: client.Configuration, clock: Callable[[], float] = time.monotonic
) -> client.Configuration:
    """The configuration, which no longer looks for a new token at every request.

    For that look the library sets all of the configuration anew and goes through the environment: a
    third of a request's time. clock: seconds of a clock that is never set back.
    """
    look, looked = configuration.refresh_api_key_hook, clock()
    if look is None:
        return configuration

    def look_again(configuration: client.Configuration) -> None:
        nonlocal looked
        now = clock()
        if now >= looked + TOKEN_LOOK_INTERVAL:
            looked = now
            look(configuration)
            configuration.refresh_api_key_hook = look_again  # the library's sets its own again

    configuration.refresh_api_key_hook = look_again
    return configuration


def policies_path(namespace: str | None) -> str:
    """The collection of policies: of one namespace, or of all with None."""
    scope = f"/namespaces/{namespace}" if namespace else ""
    return f"/apis/{GROUP}/{VERSION}{scope}/{PLURAL}"


class KubeApi:
    """Blocking calls; safe to share between threads.

    may_write: asked before every request that is no GET; a no refuses it, with status 0.
    """

    def __init__(
        self,
        configuration: client.Configuration,
        connections: int = 8,
        user_agent: str = USER_AGENT,
        may_write: Callable[[], bool] = lambda: True,
    ) -> None:
        configuration.connection_pool_maxsize = connections
        # A write that failed is decided upon again at the next tick, never repeated blindly.
        configuration.retries = False
        self._client = client.ApiClient(configuration)
        self._client.user_agent = user_agent
        self._may_write = may_write

    def request(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
        query: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Send one request; the answer's JSON. Raises ApiError."""
        if method != "GET" and not self._may_write():
            raise ApiError(0, "NotLeading", "nothing is written without a lease that is in force")
        serialized = self._client.param_serialize(
            method,
            path,
            query_params=list((query or {}).items()),
            header_params={"Accept": "application/json", "Content-Type": content_type},
            body=body,
            auth_settings=["BearerToken"],
        )
        try:
            response = self._client.call_api(
                *serialized, _request_timeout=(CONNECT_TIMEOUT, READ_TIMEOUT)
            )
            data = response.read()
        except (urllib3.exceptions.HTTPError, client.ApiException) as error:
            server = self._client.configuration.host
            raise ApiError(0, "Unreachable", f"API server: {server}: {_cause(error)}") from error
        return _decode(response.status, data)

    def get(self, path: str) -> dict[str, Any]:
        """One object. Raises ApiError."""
        return self.request("GET", path)

    def get_or_none(self, path: str) -> dict[str, Any] | None:
        """One object, or None where there is none. Raises ApiError for other faults."""
        try:
            return self.get(path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def items(
        self, path: str, selection: Mapping[str, str] | None = None
    ) -> Iterator[dict[str, Any]]:
        """All objects of a collection, page by page; `selection` is, for example, labelSelector.

        Raises ApiError.
        """
        query = {"limit": str(PAGE_SIZE), **(selection or {})}
        while True:
            page = self.request("GET", path, query=query)
            yield from page.get("items") or ()
            token = (page.get("metadata") or {}).get("continue")
            if not token:
                return
            query["continue"] = token

    def apply(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Server-side apply under our field manager, never forced. Raises ApiError."""
        query = {"fieldManager": FIELD_MANAGER, "force": "false"}
        return self.request("PATCH", path, body=body, content_type=APPLY_PATCH, query=query)


def _cause(error: Exception) -> str:
    """Why there is no answer, without the library's objects and the request's address."""
    inner = error.__cause__ or error.__context__
    if isinstance(inner, OSError) and inner.strerror:
        return inner.strerror
    return _LIBRARY.sub("", " ".join(str(error).split()))


def _line(data: bytes | None) -> str:
    """The beginning of an answer that is no JSON, in one line."""
    return " ".join((data or b"")[:200].decode(errors="replace").split())


def _decode(status: int, data: bytes | None) -> dict[str, Any]:
    """The JSON object of an answer; an error's Status object becomes ApiError."""
    try:
        answer = msgspec.json.decode(data or b"{}")
    except (msgspec.DecodeError, RecursionError):
        answer = {"reason": "NotJSON", "message": _line(data)}
        status = status if status >= 300 else 0
    if not isinstance(answer, dict):
        raise ApiError(0, "NotJSON", "the API server's answer is not an object")
    if 200 <= status < 300:
        return answer
    causes = tuple((answer.get("details") or {}).get("causes") or ())
    reason, message = answer.get("reason") or "Error", answer.get("message") or "no message"
    raise ApiError(status, str(reason), str(message), causes)
