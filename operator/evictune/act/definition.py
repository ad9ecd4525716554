"""Whether the definition in the cluster keeps all that the operator remembers.

An older definition drops fields it does not know: when a status is written, and already when one is
read. What was remembered would be gone with the first write, and nothing would show it. So before
anything is written, a status with every field is sent as a dry run, and the answer compared.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from evictune.act.status import StatusPrunedError, dropped_fields
from evictune.api.status_schema import status_schema
from evictune.kube import MERGE_PATCH, KubeApi, policies_path

# Of all policies together: the definition is the cluster's.
ASK_INTERVAL = 60.0

_TEXTS = {"date-time": "2000-01-01T00:00:00Z"}


class DefinitionCheck:
    """Blocking; safe to share between threads."""

    def __init__(self, api: KubeApi, clock: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._clock = clock
        self._asked: float | None = None
        self._lock = threading.Lock()

    def check(self, body: Mapping[str, Any]) -> None:
        """Ask, with this policy, unless the definition was found good within the last minute.

        Raises StatusPrunedError naming the fields, ApiError.
        """
        with self._lock:
            now = self._clock()
            if self._asked is not None and now - self._asked < ASK_INTERVAL:
                return
            self._asked = now
        try:
            self._ask(body["metadata"])
        except BaseException:  # whatever ended it, the definition was not found good
            with self._lock:
                self._asked = None
            raise

    def _ask(self, metadata: Mapping[str, Any]) -> None:
        wanted = specimen(status_schema())
        answer = self._api.request(
            "PATCH",
            f"{policies_path(metadata['namespace'])}/{metadata['name']}/status",
            body={"metadata": {}, "status": wanted},
            content_type=MERGE_PATCH,
            query={"dryRun": "All"},
        )
        lost = dropped_fields(wanted, answer.get("status") or {})
        if lost:
            raise StatusPrunedError(lost)


def specimen(schema: Mapping[str, Any]) -> Any:
    """A value with every field of a schema, for seeing which ones are kept."""
    kind = schema["type"]
    if kind == "object":
        fields = dict(schema.get("properties") or {})
        if isinstance(schema.get("additionalProperties"), Mapping):
            fields["specimen"] = schema["additionalProperties"]
        return {name: specimen(inner) for name, inner in fields.items()}
    if kind == "array":
        return [specimen(schema["items"])]
    if "enum" in schema:
        return schema["enum"][0]
    return {
        "string": _TEXTS.get(schema.get("format", ""), "specimen"),
        "integer": schema.get("minimum", 1),
        "boolean": True,
    }[kind]
