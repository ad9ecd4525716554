"""EvictionPolicy as typed objects: the single place where a field, its default and its limits stand.

The CRD (`evictune crd`) is generated from these classes; `parse` turns a resource as the API server
sends it into them. A field enters here with the behaviour behind it, not before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import Any

GROUP = "evictune.io"
VERSION = "v1alpha1"
KIND = "EvictionPolicy"
PLURAL = "evictionpolicies"
SHORT_NAME = "evp"


class Mode(StrEnum):
    """How far the operator goes."""

    OBSERVE = "Observe"
    RECOMMEND = "Recommend"
    AUTO = "Auto"


@dataclass(frozen=True)
class TargetRef:
    """The workload whose pods run the engines. Immutable."""

    api_version: str
    kind: str
    name: str


@dataclass(frozen=True)
class TTFTObjective:
    """quantile of the time to first token at most threshold seconds, over window seconds."""

    quantile: Decimal
    threshold: float
    window: float
    min_requests: int


@dataclass(frozen=True)
class SLO:
    """What the user wants. The last two count per engine; None where not asked for."""

    ttft: TTFTObjective
    max_preemptions_per_second: Decimal | None = None
    max_kv_cache_usage: Decimal | None = None


@dataclass(frozen=True)
class TokenRange:
    """Bounds in tokens, both included."""

    minimum: int
    maximum: int


@dataclass(frozen=True)
class TLRUKnobs:
    """Bounds of T-LRU's two parameters."""

    xi_tokens: TokenRange
    q_hat_tokens: TokenRange


@dataclass(frozen=True)
class Knobs:
    """What may be turned. A knob that is absent is not touched."""

    tlru: TLRUKnobs | None = None


@dataclass(frozen=True)
class Behavior:
    """Pace and caution; durations in seconds."""

    interval: float = 30.0
    settle: float = 300.0
    cooldown: float = 600.0
    tolerance: Decimal = Decimal("0.10")
    knob_ttl: float = 3600.0


@dataclass(frozen=True)
class EvictionPolicySpec:
    """spec of an EvictionPolicy."""

    target_ref: TargetRef
    slo: SLO
    knobs: Knobs = field(default_factory=Knobs)
    behavior: Behavior = field(default_factory=Behavior)
    mode: Mode = Mode.RECOMMEND
    suspend: bool = False
    container_name: str | None = None
    source: str = "default"


@dataclass(frozen=True)
class EvictionPolicy:
    """One resource. `status` is the status subresource as the API server holds it."""

    namespace: str
    name: str
    uid: str
    generation: int
    resource_version: str
    creation_timestamp: str
    spec: EvictionPolicySpec
    status: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """NAMESPACE/NAME."""
        return f"{self.namespace}/{self.name}"
