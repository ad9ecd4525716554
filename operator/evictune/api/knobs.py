"""The knob document: what the operator writes and every engine reads.

The document is a ConfigMap's key `knobs.json`, mounted into the engine's pod as a directory. It
expires: an engine whose operator is gone returns to stock LRU.
"""

from __future__ import annotations

from dataclasses import dataclass

SCHEMA = "evictune.io/knobs/v1"
FILE_NAME = "knobs.json"


@dataclass(frozen=True)
class KnobValues:
    """Values of T-LRU in tokens. xi_tokens None is stock LRU."""

    xi_tokens: int | None
    q_hat_tokens: int | None = None

    @property
    def stock(self) -> bool:
        """Whether this is stock LRU."""
        return self.xi_tokens is None


STOCK_LRU = KnobValues(xi_tokens=None)


@dataclass(frozen=True)
class KnobDocument:
    """The document as it now stands in the ConfigMap. `expires` is seconds since the epoch.

    owned: whether the ConfigMap goes with this policy; not that of a policy which was deleted.
    """

    revision: int
    values: KnobValues
    expires: float
    owned: bool = True


def config_map_name(target_kind: str, target_name: str) -> str:
    """The ConfigMap of a target, known before any policy exists, so that a pod can mount it."""
    return f"evictune-knobs-{target_kind.lower()}-{target_name}"
