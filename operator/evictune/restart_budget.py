"""One engine restarts at a time, in the whole fleet.

What is known of each policy comes from its own status at its last tick. After a start of the
operator nothing is known of a policy that was not looked at yet: until then nobody begins.
"""

from __future__ import annotations

from evictune.api.decision import Memory
from evictune.index import Key, PolicyIndex


class RestartBudget:
    """Used from the event loop only: between `elsewhere` and `note` nothing else may run."""

    def __init__(self, index: PolicyIndex) -> None:
        self._index = index
        self._restarting: dict[Key, bool] = {}

    def note(self, key: Key, memory: Memory) -> None:
        """What a policy remembers from now on."""
        self._restarting[key] = memory.pending is not None and memory.pending.restarting

    def elsewhere(self, key: Key) -> str:
        """In words, why no engine of this policy may restart now; empty if one may."""
        others = {other for other in self._index.entries() if other != key}
        self._restarting = {
            known: value for known, value in self._restarting.items() if known in others | {key}
        }
        for other in sorted(others):
            name = "/".join(other)
            if other not in self._restarting:
                return f"whether an engine of policy {name} is restarting is not known yet"
            if self._restarting[other]:
                return f"an engine of policy {name} is restarting"
        return ""
