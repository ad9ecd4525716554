"""Whether the definition in the cluster keeps all that the operator remembers.

An older definition drops fields it does not know: when a status is written, and already when one is
read. What was remembered would be gone with the first write, and nothing would show it. So before
anything is written, a status with every field is sent as a dry run, and the answer compared. What a
policy does not use may be missing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from evictune.act.status import StatusPrunedError, dropped_fields
from evictune.api.policy import has_restarted
from evictune.api.status_schema import OF_THE_MEMORY_FRACTION, status_schema
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
        self._lost: tuple[str, ...] = ()
        self._lock = threading.Lock()

    def check(self, body: Mapping[str, Any]) -> None:
        """Ask, with this policy, unless the definition was found good within the last minute.

        Raises StatusPrunedError naming the fields that this policy needs, ApiError.
        """
        lost = self._known()
        if lost is None:
            lost = self._ask(body["metadata"])
        needed = _needed(body, lost)
        if needed:
            with self._lock:
                self._asked = None
            raise StatusPrunedError(needed)

    def _known(self) -> tuple[str, ...] | None:
        """What was lost at the last look, unless that is too long ago."""
        with self._lock:
            now = self._clock()
            recent = self._asked is not None and now - self._asked < ASK_INTERVAL
            return self._lost if recent else None

    def _ask(self, metadata: Mapping[str, Any]) -> tuple[str, ...]:
        """What the definition loses of a status with every field."""
        wanted = specimen(status_schema())
        answer = self._api.request(
            "PATCH",
            f"{policies_path(metadata['namespace'])}/{metadata['name']}/status",
            body={"metadata": {}, "status": wanted},
            content_type=MERGE_PATCH,
            query={"dryRun": "All"},
        )
        lost = dropped_fields(wanted, answer.get("status") or {})
        with self._lock:
            self._asked, self._lost = self._clock(), lost
        return lost


def _needed(body: Mapping[str, Any], lost: Iterable[str]) -> tuple[str, ...]:
    """Those of the fields that this policy needs, whether or not its spec can be understood."""
    knobs = (body.get("spec") or {}).get("knobs") or {}
    if "gpuMemoryUtilization" in knobs or has_restarted(body.get("status") or {}):
        return tuple(lost)
    unused = OF_THE_MEMORY_FRACTION
    return tuple(path for path in lost if not any(fnmatchcase(path, each) for each in unused))


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
