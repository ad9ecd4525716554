"""Which policies there are, and which of those that name one target is the older.

Filled from the watch and from the periodic list; it holds identities only. What a policy says is
read afresh at each tick.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Key = tuple[str, str]
Target = tuple[str, str, str]


@dataclass(frozen=True)
class Entry:
    """One policy. target: (namespace, kind, name), or None where the spec names none."""

    namespace: str
    name: str
    uid: str
    generation: int
    created: str
    target: Target | None

    @property
    def key(self) -> Key:
        """(namespace, name)."""
        return (self.namespace, self.name)

    @property
    def seniority(self) -> tuple[str, str]:
        """Sorts the older first; RFC 3339 in UTC sorts as text."""
        return (self.created, self.name)


def entry_of(body: Mapping[str, Any]) -> Entry:
    """The entry of a resource as the API server sends it."""
    metadata = body["metadata"]
    reference = (body.get("spec") or {}).get("targetRef") or {}
    target = None
    if reference.get("kind") and reference.get("name"):
        target = (metadata["namespace"], str(reference["kind"]), str(reference["name"]))
    return Entry(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        generation=metadata.get("generation", 0),
        created=metadata.get("creationTimestamp") or "",
        target=target,
    )


def is_leaving(body: Mapping[str, Any]) -> bool:
    """Whether the resource is being deleted."""
    return bool(body["metadata"].get("deletionTimestamp"))


class PolicyIndex:
    """All policies by key. Used from the event loop only."""

    def __init__(self) -> None:
        self._entries: dict[Key, Entry] = {}
        self._by_target: defaultdict[Target | None, dict[Key, Entry]] = defaultdict(dict)

    def put(self, entry: Entry) -> None:
        """Add or replace."""
        self.remove(entry.key)
        self._entries[entry.key] = entry
        self._by_target[entry.target][entry.key] = entry

    def remove(self, key: Key) -> Entry | None:
        """Remove, if present."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            sharing = self._by_target[entry.target]
            del sharing[key]
            if not sharing:
                del self._by_target[entry.target]
        return entry

    def get(self, key: Key) -> Entry | None:
        """The entry of a key."""
        return self._entries.get(key)

    def entries(self) -> dict[Key, Entry]:
        """All entries, as they are now."""
        return dict(self._entries)

    def sharing(self, entry: Entry) -> Iterable[Entry]:
        """The other policies with the same target."""
        if entry.target is None:
            return []
        sharing = self._by_target.get(entry.target, {})
        return [other for key, other in sharing.items() if key != entry.key]

    def older_rival(self, key: Key) -> Entry | None:
        """The oldest policy with the same target, if it is not this one."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        oldest = min([entry, *self.sharing(entry)], key=lambda each: each.seniority)
        return None if oldest is entry else oldest
