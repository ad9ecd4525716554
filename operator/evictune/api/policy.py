"""EvictionPolicy as typed objects: the one place where a field, its default and its limits stand.

The CRD (`evictune crd`) is generated from these classes; `parse` turns a resource as the API server
sends it into them. A field enters here with the behaviour behind it, not before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import Any, ClassVar

from evictune.api.disruption import Disruption, FractionRange
from evictune.api.fields import (
    Rule,
    boolean,
    choice,
    decimal,
    duration,
    integer,
    nested,
    nested_default,
    text,
)

GROUP = "evictune.io"
VERSION = "v1alpha1"
KIND = "EvictionPolicy"
PLURAL = "evictionpolicies"
SHORT_NAME = "evp"

TARGET_KINDS = ("Deployment", "StatefulSet")
# The knobs' ConfigMap is named after the target: `evictune-knobs-statefulset-` takes 27 characters
# of the 253 that a name may have.
TARGET_NAME_LENGTH = 253 - len("evictune-knobs-statefulset-")
MAX_TOKENS = 10_000_000
DNS_SUBDOMAIN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
DNS_LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"


class Mode(StrEnum):
    """How far the operator goes."""

    OBSERVE = "Observe"
    RECOMMEND = "Recommend"
    AUTO = "Auto"


class FleetMode(StrEnum):
    """The administrator's switch over all policies: the most that any of them may do.

    Suspend: as spec.suspend on each. Recommend: nothing but status and Events is written.
    """

    AUTO = "Auto"
    SUSPEND = "Suspend"
    RECOMMEND = "Recommend"

    def limits(self, mode: Mode) -> bool:
        """Whether it allows less than a policy's own mode."""
        return self is FleetMode.RECOMMEND and mode is Mode.AUTO


@dataclass(frozen=True)
class TargetRef:
    """The workload whose pods run the engines. Immutable."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self == oldSelf",
            "targetRef is immutable: delete this policy and create one for the other target",
            "",
            None,
        ),
    )

    api_version: str = text(
        "API version of the target.", required=True, choices=("apps/v1",), max_length=32
    )
    kind: str = text("Kind of the target.", required=True, choices=TARGET_KINDS, max_length=32)
    name: str = text(
        "Name of the target, in the policy's own namespace.",
        required=True,
        pattern=DNS_SUBDOMAIN,
        max_length=TARGET_NAME_LENGTH,
    )


@dataclass(frozen=True)
class TTFTObjective:
    """quantile of the time to first token at most threshold seconds, over window seconds."""

    quantile: Decimal = decimal(
        'Which quantile of the time to first token is judged, such as "0.99".',
        minimum="0",
        maximum="1",
        exclusive=True,
        required=True,
    )
    threshold: float = duration(
        "What the quantile shall not exceed, such as 800ms.",
        minimum="1ms",
        maximum="1h",
        required=True,
    )
    window: float = duration(
        "The stretch of time, up to now, whose requests are judged together.",
        minimum="1s",
        maximum="24h",
        default="10m",
    )
    min_requests: int = integer(
        "Fewer requests than this in the window are too few to judge by: the objective is then "
        "neither met nor violated. A p99 needs about 300.",
        minimum=1,
        maximum=1_000_000,
        default=300,
    )


@dataclass(frozen=True)
class SLO:
    """What the user wants. The last two count per engine; None where not asked for."""

    ttft: TTFTObjective = nested(
        "Objective for the time to first token (TTFT), all engines of the target together.",
        TTFTObjective,
        required=True,
    )
    max_preemptions_per_second: Decimal | None = decimal(
        'Most preemptions a second that any one engine shall have, such as "0.2". '
        "Left out: not judged.",
        minimum="0",
    )
    max_kv_cache_usage: Decimal | None = decimal(
        "Highest share of any one engine's KV blocks that live requests shall hold, such as "
        '"0.92". Left out: not judged.',
        minimum="0",
        maximum="1",
        name="maxKVCacheUsage",
    )


@dataclass(frozen=True)
class TokenRange:
    """Bounds in tokens, both included."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.min <= self.max",
            "min must not be above max: lower min or raise max",
            ".min",
            lambda bounds: bounds.minimum <= bounds.maximum,
        ),
    )

    minimum: int = integer(
        "Smallest value that may be set.", minimum=0, maximum=MAX_TOKENS, required=True, name="min"
    )
    maximum: int = integer(
        "Largest value that may be set.", minimum=0, maximum=MAX_TOKENS, required=True, name="max"
    )


@dataclass(frozen=True)
class TLRUKnobs:
    """Bounds of T-LRU's two parameters."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.xiTokens.min >= 1",
            "xiTokens.min must be at least 1: xi 0 is stock LRU",
            ".xiTokens.min",
            lambda knobs: knobs.xi_tokens.minimum >= 1,
        ),
    )

    xi_tokens: TokenRange = nested(
        "Bounds of xi: how many tokens of a returning conversation may have to be prefilled again. "
        "Of a conversation of H tokens, T-LRU keeps H + qHat - xi in preference to all else.",
        TokenRange,
        required=True,
    )
    q_hat_tokens: TokenRange = nested(
        "Bounds of qHat: by how many tokens a conversation is taken to grow from one turn to the "
        "next, the answer included. The lower bound is what is set: a larger qHat does what a "
        "smaller xi does, and xi is searched.",
        TokenRange,
        required=True,
    )


@dataclass(frozen=True)
class Knobs:
    """What may be turned. A knob that is absent is not touched."""

    tlru: TLRUKnobs | None = nested(
        "T-LRU, the eviction order that keeps what the TTFT objective needs.", TLRUKnobs
    )
    gpu_memory_utilization: FractionRange | None = nested(
        "The share of the GPU's memory that an engine may take: more of it is more KV blocks. A "
        "change restarts engines in place, as far as behavior.disruption allows.",
        FractionRange,
    )


@dataclass(frozen=True)
class Behavior:
    """Pace and caution; durations in seconds."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "duration(self.knobTTL) >= duration(self.interval) + duration(self.interval) "
            "+ duration(self.interval)",
            "knobTTL must be at least three times interval: the document is renewed at half of "
            "its life; raise knobTTL or lower interval",
            ".knobTTL",
            lambda behavior: behavior.knob_ttl >= 3 * behavior.interval,
        ),
    )

    interval: float = duration(
        "How often the target is looked at.", minimum="1s", maximum="1h", default="30s"
    )
    settle: float = duration(
        "How long after every engine acknowledged a change its effect is left to build up. "
        "One whole slo.ttft.window later it is judged: by requests after settling alone.",
        minimum="0s",
        maximum="24h",
        default="5m",
    )
    cooldown: float = duration(
        "Least time between the starts of two changes. Taking a change back does not wait for it.",
        minimum="0s",
        maximum="24h",
        default="10m",
    )
    tolerance: Decimal = decimal(
        "By which share a reading must clear a limit to count, and a change must better a reading "
        'to have helped: "0.10" is a tenth.',
        minimum="0",
        maximum="1",
        default="0.10",
    )
    knob_ttl: float = duration(
        "For how long the engines keep following values that are no longer renewed (the operator "
        "renews at half of it); then they return to stock LRU.",
        minimum="3s",
        maximum="168h",
        default="1h",
        name="knobTTL",
    )
    disruption: Disruption = nested_default(
        "How far engines may be restarted to change the memory fraction.", Disruption
    )


@dataclass(frozen=True)
class MetricsReference:
    """Where readings come from."""

    source: str = text(
        "Name of a metrics source that the administrator defined in the operator's configuration.",
        default="default",
        pattern=DNS_LABEL,
        max_length=63,
    )


@dataclass(frozen=True)
class EvictionPolicySpec:
    """spec of an EvictionPolicy."""

    target_ref: TargetRef = nested(
        "The workload whose pods run the engines.", TargetRef, required=True
    )
    slo: SLO = nested("What is wanted: the service level objectives.", SLO, required=True)
    knobs: Knobs = nested_default(
        "What may be turned, and within which bounds. A knob that is absent is not touched.", Knobs
    )
    behavior: Behavior = nested_default("Pace and caution of the loop.", Behavior)
    mode: Mode = choice(
        "How far to go. Observe: readings and diagnosis. Recommend: also the value that would be "
        "set. Auto: set it, check that it helped, or take it back.",
        default=Mode.RECOMMEND,
    )
    suspend: bool = boolean(
        "Take no decisions. Values in force stay, and are renewed.", default=False
    )
    container_name: str | None = text(
        "The container that runs the engine, where more than one looks like it.",
        pattern=DNS_LABEL,
        max_length=63,
    )
    metrics: MetricsReference = nested_default("Where readings come from.", MetricsReference)

    @property
    def source(self) -> str:
        """The name of the metrics source."""
        return self.metrics.source


def has_restarted(status: Mapping[str, Any]) -> bool:
    """Whether a status remembers engines that were restarted for a memory fraction."""
    return "pods" in (status.get("pending") or {}) or "trial" in status


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

    @property
    def restarts_engines(self) -> bool:
        """Whether engines may restart for it: the memory fraction is a knob, or has been one."""
        return has_restarted(self.status) or self.spec.knobs.gpu_memory_utilization is not None
