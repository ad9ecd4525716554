"""The knob document: what the operator writes and every engine reads.

The document is a ConfigMap's key `knobs.json`, mounted into the engine's pod as a directory. It
expires: an engine whose operator is gone returns to stock LRU.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal

SCHEMA = "evictune.io/knobs/v1"
FILE_NAME = "knobs.json"


@dataclass(frozen=True)
class KnobValues:
    """Values of T-LRU in tokens, and the memory fraction.

    xi_tokens None is stock LRU. fraction None: each engine's own, as its manifest has it.
    """

    xi_tokens: int | None
    q_hat_tokens: int | None = None
    fraction: Decimal | None = None

    @property
    def stock(self) -> bool:
        """Whether blocks are evicted by stock LRU."""
        return self.xi_tokens is None

    @property
    def untouched(self) -> bool:
        """Whether nothing is set at all."""
        return self.stock and self.fraction is None

    @property
    def order(self) -> KnobValues:
        """The order of eviction alone."""
        return replace(self, fraction=None)

    def at(self, fraction: Decimal | None) -> KnobValues:
        """The same order of eviction with this memory fraction."""
        return replace(self, fraction=fraction)


STOCK_LRU = KnobValues(xi_tokens=None)


@dataclass(frozen=True)
class PodKnobs:
    """One pod's entry, in place of the default one.

    restart: a word that asks this pod for one restart, ever; empty: for none. drain_seconds: how
    long requests in flight may hold that up.
    """

    values: KnobValues
    restart: str = ""
    drain_seconds: float | None = field(default=None, compare=False)


@dataclass(frozen=True)
class KnobDocument:
    """The document as it now stands in the ConfigMap. `expires` is seconds since the epoch.

    owned: whether the ConfigMap goes with this policy; not that of a policy which was deleted.
    """

    revision: int
    values: KnobValues
    expires: float
    owned: bool = True
    pods: Mapping[str, PodKnobs] = field(default_factory=dict)


def config_map_name(target_kind: str, target_name: str) -> str:
    """The ConfigMap of a target, known before any policy exists, so that a pod can mount it."""
    return f"evictune-knobs-{target_kind.lower()}-{target_name}"
