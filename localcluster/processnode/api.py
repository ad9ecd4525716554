"""Plain JSON access to the Kubernetes API: what a node needs of it, and one kind of error.

Objects stay the JSON the server sent. The generated models of the official client would drop
fields younger than the client, and the list of supported pod fields has to see those too.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import urllib3
from kubernetes import client, config

Json = dict[str, Any]

MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"

_REQUEST_TIMEOUT_SECONDS = 10.0
_CONNECT_TIMEOUT_SECONDS = 5.0


class ApiError(Exception):
    """The API server refused a request, or could not be reached.

    `status` is the HTTP status, or None when no answer came.
    """

    def __init__(self, status: int | None, message: str) -> None:
        super().__init__(message)
        self.status = status

    @property
    def not_found(self) -> bool:
        return self.status == 404


class ClusterApi:
    """Requests to one API server. Safe to use from several threads."""

    def __init__(self, api_client: Any) -> None:
        self._client = api_client

    @classmethod
    def from_kubeconfig(cls, path: Path) -> ClusterApi:
        """Connect as the current context of a kubeconfig file says; no retries of its own."""
        settings = client.Configuration()
        config.load_kube_config(config_file=str(path), client_configuration=settings)
        settings.retries = False
        if not settings.verify_ssl:  # the file says so itself: no warning at every request
            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
        settings.connection_pool_maxsize = 32
        return cls(client.ApiClient(settings))

    @property
    def server(self) -> str:
        return str(self._client.configuration.host)

    @property
    def ca_file(self) -> Path | None:
        """The authority of the cluster's certificates, if the kubeconfig names one."""
        file = self._client.configuration.ssl_ca_cert
        return Path(file) if file else None

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Json | None = None,
        content_type: str = "application/json",
    ) -> Json:
        """Send one request and return the object in the answer; raises ApiError."""
        response = self._send(
            method, path, query, body, content_type, timeout=_REQUEST_TIMEOUT_SECONDS
        )
        try:
            answer = json.loads(response.read())
        except (urllib3.exceptions.HTTPError, ValueError) as error:
            raise ApiError(None, f"{method} {path}: {error}") from error
        if not isinstance(answer, dict):
            raise ApiError(None, f"{method} {path}: the answer is not an object")
        return answer

    def get(self, path: str, *, query: Mapping[str, str] | None = None) -> Json:
        return self.request("GET", path, query=query)

    def create(self, path: str, body: Json) -> Json:
        return self.request("POST", path, body=body)

    def patch(self, path: str, body: Json, *, content_type: str = MERGE_PATCH) -> Json:
        return self.request("PATCH", path, body=body, content_type=content_type)

    def delete(self, path: str, options: Json | None = None) -> None:
        self.request("DELETE", path, body=options or {})

    def watch(
        self, path: str, *, query: Mapping[str, str], seconds: int
    ) -> Iterator[tuple[str, Json]]:
        """Yield (type, object) of a watch until the server ends it after about `seconds`."""
        full = {**query, "watch": "true", "timeoutSeconds": str(seconds)}
        # A little longer than the server's own limit: a silent, dead connection must end too.
        response = self._send("GET", path, full, None, "application/json", timeout=seconds + 5.0)
        try:
            for line in _lines(response.response):
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise ApiError(event["object"].get("code"), str(event["object"]))
                yield event["type"], event["object"]
        except (urllib3.exceptions.HTTPError, ValueError) as error:
            raise ApiError(None, f"watch {path}: {error}") from error
        finally:
            response.response.close()

    def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: Json | None,
        content_type: str,
        *,
        timeout: float,
    ) -> Any:
        arguments = self._client.param_serialize(
            method,
            path,
            query_params=list((query or {}).items()),
            header_params={"Accept": "application/json", "Content-Type": content_type},
            body=body,
            auth_settings=["BearerToken"],
        )
        try:
            response = self._client.call_api(
                *arguments, _request_timeout=(_CONNECT_TIMEOUT_SECONDS, timeout)
            )
            if response.status < 300:
                return response
            message = _message(response.read())
        except (urllib3.exceptions.HTTPError, client.ApiException, OSError) as error:
            raise ApiError(None, f"{method} {path}: {error}") from error
        raise ApiError(response.status, f"{method} {path}: {response.status} {message}")


def _message(data: bytes) -> str:
    """What a refusal says: the message of the Status object, or the text of a proxy's page."""
    try:
        return str(json.loads(data)["message"])
    except (ValueError, TypeError, KeyError):
        return data[:200].decode(errors="replace")


def _lines(response: Any) -> Iterator[bytes]:
    rest = b""
    for chunk in response.stream(amt=None, decode_content=True):
        *whole, rest = (rest + chunk).split(b"\n")
        yield from (line for line in whole if line)


class ObjectCache:
    """ConfigMaps and Secrets, each read again when its copy is older than `max_age` seconds.

    Polling keeps mounts fresh within about a second for the few objects that a local node
    mounts, and survives restarts of the API server without any state of a watch.
    """

    def __init__(
        self,
        api: ClusterApi,
        max_age: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._max_age = max_age
        self._clock = clock
        self._lock = threading.Lock()
        self._copies: dict[str, tuple[float, Json | None]] = {}

    def config_map(self, namespace: str, name: str) -> Json | None:
        return self._get(f"/api/v1/namespaces/{namespace}/configmaps/{name}")

    def secret(self, namespace: str, name: str) -> Json | None:
        return self._get(f"/api/v1/namespaces/{namespace}/secrets/{name}")

    def _get(self, path: str) -> Json | None:
        """The object, or None if it does not exist.

        While the API server is unreachable the last answer holds; ApiError if there is none.
        """
        with self._lock:
            read_at, value = self._copies.get(path, (float("-inf"), None))
        if self._clock() - read_at < self._max_age:
            return value
        try:
            value = self._api.get(path)
        except ApiError as error:
            if not error.not_found:
                if read_at > float("-inf"):
                    return value
                raise
            value = None
        with self._lock:
            self._copies[path] = (self._clock(), value)
        return value
