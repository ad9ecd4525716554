"""The status subresource: written whole, under a resourceVersion precondition, only when needed.

Status is the operator's memory, so a write that the API server did not keep whole (an old CRD
prunes fields it does not know) must stop the change that relies on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from evictune.act.knobs import StaleObjectError
from evictune.api.status_schema import status_schema
from evictune.kube import MERGE_PATCH, ApiError, KubeApi, policies_path

# So many names leave room for the remedy in an Event's 1024 characters.
_SHOWN = 8
_FIELDS = frozenset(status_schema()["properties"])


class StatusPrunedError(Exception):
    """The API server dropped fields of the status: its CRD is older than this operator."""

    def __init__(self, fields: tuple[str, ...]) -> None:
        shown = ", ".join(fields[:_SHOWN])
        if len(fields) > _SHOWN:
            shown += f" and {len(fields) - _SHOWN} more"
        super().__init__(
            f"the API server dropped {shown}: its EvictionPolicy definition is older "
            "than this operator; run `evictune crd | kubectl apply -f -`"
        )
        self.fields = fields


class StatusWriter:
    """Blocking writes of a policy's status."""

    def __init__(self, api: KubeApi) -> None:
        self._api = api

    def write(self, body: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
        """Bring the status to `wanted`; False if only times differ and nothing was sent.

        `body`: the resource as it was read, whether or not its spec can be understood.
        Raises StaleObjectError (the policy changed since it was read), StatusPrunedError, ApiError.
        """
        metadata, status = body["metadata"], _known(body.get("status") or {}, wanted)
        if _timeless(status) == _timeless(wanted):
            return False
        patch = {
            "metadata": {"resourceVersion": metadata["resourceVersion"]},
            "status": merge_patch(status, wanted),
        }
        path = f"{policies_path(metadata['namespace'])}/{metadata['name']}/status"
        try:
            answer = self._api.request("PATCH", path, body=patch, content_type=MERGE_PATCH)
        except ApiError as error:
            if error.status == 409:
                raise StaleObjectError(f"{metadata['name']} changed meanwhile") from error
            raise
        lost = dropped_fields(wanted, answer.get("status") or {})
        if lost:
            raise StatusPrunedError(lost)
        return True


def merge_patch(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON merge patch (RFC 7386) that turns `old` into `new`: null removes a key."""
    patch: dict[str, Any] = {key: None for key in old if new.get(key) is None}
    for key, value in new.items():
        if value is None or old.get(key) == value:
            continue
        before = old.get(key)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            patch[key] = merge_patch(before, value)
        else:
            patch[key] = value
    return patch


def dropped_fields(wanted: Mapping[str, Any], kept: Mapping[str, Any]) -> tuple[str, ...]:
    """Paths of what was sent as .status but is not in the API server's answer."""
    return tuple(_missing(wanted, kept, "status"))


def _known(status: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The status without the fields of a newer operator: what it remembers there stays as it is."""
    return {key: value for key, value in status.items() if key in _FIELDS or key in wanted}


def _timeless(value: Any) -> Any:
    """The value without times and without absent fields, for telling whether anything changed."""
    if isinstance(value, Mapping):
        kept = {key: _timeless(item) for key, item in value.items() if not _is_time(key)}
        return {key: item for key, item in kept.items() if item is not None}
    if isinstance(value, list | tuple):
        return [_timeless(item) for item in value]
    return value


def _is_time(key: str) -> bool:
    return key == "time" or key.endswith("Time")


def _missing(wanted: Any, kept: Any, path: str) -> Iterator[str]:
    """Paths of what was sent but not kept."""
    if isinstance(wanted, Mapping):
        for key, value in wanted.items():
            if value is None:
                continue
            if not isinstance(kept, Mapping) or key not in kept:
                yield f"{path}.{key}"
            else:
                yield from _missing(value, kept[key], f"{path}.{key}")
    elif isinstance(wanted, list | tuple):
        found = kept if isinstance(kept, list) else []
        for index, value in enumerate(wanted):
            if index < len(found):
                yield from _missing(value, found[index], f"{path}[{index}]")
            else:
                yield f"{path}[{index}]"
