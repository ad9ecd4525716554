"""The knob document in its ConfigMap: read, and written by server-side apply.

Our field manager owns what it wrote; the API server tells when somebody else changed it since
(https://kubernetes.io/docs/reference/using-api/server-side-apply/#conflicts). A person's edit is
respected, not fought: it is reported by name, and nothing is written over it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from evictune.api.decision import WriteKnobs
from evictune.api.knobs import (
    FILE_NAME,
    SCHEMA,
    KnobDocument,
    KnobValues,
    PodKnobs,
    config_map_name,
)
from evictune.api.policy import GROUP, KIND, VERSION, EvictionPolicy
from evictune.api.times import format_time, parse_time
from evictune.kube import FIELD_MANAGER, ApiError, KubeApi

MANAGED_BY = "app.kubernetes.io/managed-by"
_MANAGER_IN_CAUSE = re.compile(r'conflict with "([^"]+)"')


class ForeignManagerError(Exception):
    """Somebody else owns the document: it stays as they left it."""

    def __init__(self, manager: str) -> None:
        super().__init__(f"the knob document is owned by field manager {manager!r}")
        self.manager = manager


class StaleObjectError(Exception):
    """An object changed since it was read: the tick ends and starts afresh."""


@dataclass(frozen=True)
class StoredKnobs:
    """The ConfigMap as it was read. foreign_manager: who else owns the document, "" if nobody."""

    document: KnobDocument | None = None
    foreign_manager: str = ""
    resource_version: str = ""


class KnobStore:
    """Blocking access to the ConfigMap of a policy's target."""

    def __init__(self, api: KubeApi) -> None:
        self._api = api

    def read(self, policy: EvictionPolicy) -> StoredKnobs:
        """The document in force, with what a later write needs. Raises ApiError."""
        body = self._api.get_or_none(_path(policy))
        if body is None:
            return StoredKnobs()
        metadata = body["metadata"]
        document = parse_document((body.get("data") or {}).get(FILE_NAME))
        owners = {each.get("uid") for each in metadata.get("ownerReferences") or ()}
        return StoredKnobs(
            document=document and replace(document, owned=policy.uid in owners),
            foreign_manager=_foreign_manager(metadata),
            resource_version=metadata["resourceVersion"],
        )

    def write(
        self, policy: EvictionPolicy, effect: WriteKnobs, stored: StoredKnobs, now: float
    ) -> None:
        """Bring the document to the effect's revision and values; twice changes nothing more.

        Raises ForeignManagerError, StaleObjectError (changed since `stored` was read), ApiError.
        """
        try:
            self._api.apply(_path(policy), _config_map(policy, effect, stored, now))
        except ApiError as error:
            if error.status != 409:
                raise
            manager = _conflicting_manager(error)
            if manager:
                raise ForeignManagerError(manager) from error
            raise StaleObjectError(f"ConfigMap {_name(policy)} changed meanwhile") from error


def parse_document(text: str | None) -> KnobDocument | None:
    """The document, or None if there is none that an engine would accept."""
    try:
        raw = json.loads(text or "")
        if raw["schema"] != SCHEMA:
            return None
        pods = {
            str(name): PodKnobs(_values(entry), str(entry.get("restart") or ""))
            for name, entry in (raw.get("pods") or {}).items()
        }
        return KnobDocument(
            int(raw["revision"]), _values(raw["default"]), parse_time(raw["expires"]), pods=pods
        )
    except (ArithmeticError, AttributeError, ValueError, KeyError, TypeError, RecursionError):
        # Of a person's hand anything may come, such as 1e999 or brackets without end.
        return None


def _values(entry: Mapping[str, Any]) -> KnobValues:
    order = KnobValues(None)
    if entry["policy"] != "lru":
        order = KnobValues(int(entry["xiTokens"]), int(entry["qHatTokens"]))
    return order.at(_fraction(entry.get("gpuMemoryUtilization")))


def _fraction(number: object) -> Decimal | None:
    """By its text: 0.9 as a binary number is not nine tenths. Raises ValueError."""
    if number is None:
        return None
    fraction = Decimal(str(number))
    if not fraction.is_finite():
        raise ValueError(f"a memory fraction is {number}")
    return fraction


def render_document(effect: WriteKnobs, now: float) -> str:
    """The document's text. `now`: seconds since the epoch."""
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "revision": effect.revision,
        "expires": format_time(now + effect.ttl),
        "default": _entry(effect.values),
    }
    if effect.pods:
        document["pods"] = {name: _pod_entry(pod) for name, pod in sorted(effect.pods.items())}
    return json.dumps(document, indent=2) + "\n"


def _entry(values: KnobValues) -> dict[str, Any]:
    entry: dict[str, Any] = {"policy": "lru"}
    if not values.stock:
        entry = {"policy": "t-lru", "xiTokens": values.xi_tokens}
        entry["qHatTokens"] = values.q_hat_tokens or 0
    if values.fraction is not None:
        entry["gpuMemoryUtilization"] = float(values.fraction)
    return entry


def _pod_entry(pod: PodKnobs) -> dict[str, Any]:
    entry = _entry(pod.values)
    if pod.restart:
        entry["restart"] = pod.restart
        if pod.drain_seconds is not None:
            entry["drainSeconds"] = pod.drain_seconds
    return entry


def _name(policy: EvictionPolicy) -> str:
    return config_map_name(policy.spec.target_ref.kind, policy.spec.target_ref.name)


def _path(policy: EvictionPolicy) -> str:
    return f"/api/v1/namespaces/{policy.namespace}/configmaps/{_name(policy)}"


def _config_map(
    policy: EvictionPolicy, effect: WriteKnobs, stored: StoredKnobs, now: float
) -> dict[str, Any]:
    owner = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": KIND,
        "name": policy.name,
        "uid": policy.uid,
        "controller": False,
        "blockOwnerDeletion": False,
    }
    metadata: dict[str, Any] = {
        "name": _name(policy),
        "namespace": policy.namespace,
        "labels": {MANAGED_BY: FIELD_MANAGER},
        "ownerReferences": [owner],
    }
    if stored.resource_version:
        # A request that was delayed on its way must not undo a later one.
        metadata["resourceVersion"] = stored.resource_version
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": {FILE_NAME: render_document(effect, now)},
    }


def _foreign_manager(metadata: Mapping[str, Any]) -> str:
    """Who, other than us, last set the document; "" if nobody."""
    for entry in metadata.get("managedFields") or ():
        data = (entry.get("fieldsV1") or {}).get("f:data") or {}
        if f"f:{FILE_NAME}" in data and entry.get("manager") != FIELD_MANAGER:
            return str(entry.get("manager") or "unknown")
    return ""


def _conflicting_manager(error: ApiError) -> str:
    for cause in error.causes:
        if cause.get("reason") == "FieldManagerConflict":
            found = _MANAGER_IN_CAUSE.search(cause.get("message", ""))
            return found.group(1) if found else "unknown"
    return ""
