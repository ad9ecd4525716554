"""An API server's side of a few requests, in memory, with its preconditions; and a recorder."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from evictune.kube import MERGE_PATCH, ApiError


class FakeApi:
    """Objects by path. `requests` lists writes as (method, path, body)."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.requests: list[tuple[str, str, Mapping[str, Any]]] = []
        self.fault: Callable[[str, str], ApiError | None] = lambda method, path: None
        self._version = 0

    def put(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Store an object under the next resourceVersion."""
        self._version += 1
        stored: dict[str, Any] = copy.deepcopy(dict(body))
        stored.setdefault("metadata", {})["resourceVersion"] = str(self._version)
        self.objects[path] = stored
        return copy.deepcopy(stored)

    def get_or_none(self, path: str) -> dict[str, Any] | None:
        """The object at the path."""
        self._check("GET", path)
        found = self.objects.get(path)
        return copy.deepcopy(found) if found else None

    def items(
        self, path: str, selection: Mapping[str, str] | None = None
    ) -> Iterator[dict[str, Any]]:
        """The objects below the path."""
        self._check("GET", path)
        yield from [copy.deepcopy(v) for k, v in self.objects.items() if k.startswith(path + "/")]

    def apply(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Server-side apply by one manager, without its merging."""
        self._check("PATCH", path)
        self.requests.append(("APPLY", path, body))
        self._precondition(path, body)
        return self.put(path, body)

    def request(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any],
        content_type: str = "",
        query: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """A POST that must not repeat, or a merge patch of a status; a dry run leaves no trace."""
        self._check(method, path)
        if (query or {}).get("dryRun"):
            found = self.objects[path.removesuffix("/status")]
            return merge(found, {"status": body["status"]})  # type: ignore[no-any-return]
        self.requests.append((method, path, body))
        if method == "POST":
            name = f"{path}/{body['metadata']['name']}"
            if name in self.objects:
                raise ApiError(409, "AlreadyExists", name)
            return self.put(name, body)
        assert content_type == MERGE_PATCH
        target = path.removesuffix("/status")
        self._precondition(target, body)
        merged = merge(self.objects[target], {"status": body["status"]})
        return self.put(target, merged)

    def _precondition(self, path: str, body: Mapping[str, Any]) -> None:
        wanted = body["metadata"].get("resourceVersion")
        found = self.objects.get(path, {}).get("metadata", {}).get("resourceVersion")
        if wanted and wanted != found:
            raise ApiError(409, "Conflict", f"{path} is at {found}, not {wanted}")

    def _check(self, method: str, path: str) -> None:
        error = self.fault(method, path)
        if error:
            raise error


def merge(target: Any, patch: Any) -> Any:
    """RFC 7386, as its pseudocode has it."""
    if not isinstance(patch, Mapping):
        return copy.deepcopy(patch)
    result = dict(target) if isinstance(target, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merge(result.get(name), value)
    return result
