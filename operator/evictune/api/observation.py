"""What was seen of a target at one moment: what `observe` hands to `decide`.

A reading is a value, Idle or Unknown; never a zero that means "could not read".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from evictune.api.knobs import KnobDocument, KnobValues
from evictune.api.policy import FleetMode
from evictune.api.reasons import Reason


@dataclass(frozen=True)
class Value:
    """A finite number within its range."""

    value: float


@dataclass(frozen=True)
class Interval:
    """A quantile read from buckets lies within [lower, upper] (upper may be inf: saturated).

    `estimate` is the usual linear interpolation, for people, not for judging.
    `above_lower` and `above_upper` bound the share (0..1) of requests above the SLO's threshold.
    `seconds`: over which the requests were counted; None: the whole window.
    """

    lower: float
    upper: float
    estimate: float
    requests: float
    above_lower: float = 0.0
    above_upper: float = 1.0
    seconds: float | None = None

    @property
    def share_above(self) -> float:
        """The share of requests above the threshold, 0..1: the middle of what bounds it."""
        return (self.above_lower + self.above_upper) / 2


@dataclass(frozen=True)
class Idle:
    """Known to have no traffic."""


@dataclass(frozen=True)
class Unknown:
    """No usable reading, and why, in words that name the series or the source."""

    reason: Reason
    message: str


Reading = Value | Idle | Unknown


def number_of(reading: Reading) -> float | None:
    """A reading's number; None where it has none."""
    return reading.value if isinstance(reading, Value) else None


QuantileReading = Interval | Idle | Unknown


@dataclass(frozen=True)
class EngineObservation:
    """One engine rank of one ready pod.

    in_force: what the plugin itself says it uses; None where the plugin does not show itself.
    eligible: None where the plugin does not show itself.
    Token counts and rates cover the SLO's window.
    """

    pod: str
    engine: str
    in_force: KnobValues | None
    revision: int | None
    eligible: bool | None
    ineligible_reason: str
    block_tokens: int | None
    capacity_tokens: int | None
    kv_usage: Reading
    refused_document: str = ""
    # What the engine itself shows to be in force (vllm:cache_config_info); None: it shows none.
    fraction: Decimal | None = None
    blocks: int | None = None


@dataclass(frozen=True)
class MemoryAttempt:
    """What the plugin says of a pod's memory fraction.

    ineligible: why the pod cannot take it from the document, empty if it can. manifest: the
    command line's own. state: trying, confirmed, dropped or none, of `fraction` as the document
    had it at `revision`; of none, the last revision that failed in the pod.
    """

    ineligible: str
    manifest: Decimal | None
    state: str
    fraction: Decimal | None = None
    revision: int = 0


@dataclass(frozen=True)
class PodObservation:
    """One pod of the target, Ready or not; readings of this pod alone.

    restarts: of its engine's container. memory: None where the plugin does not show it.
    """

    name: str
    uid: str
    ready: bool
    restarts: int
    memory: MemoryAttempt | None
    ttft: QuantileReading
    hit_ratio: Reading
    preemptions: Reading


@dataclass(frozen=True)
class TargetState:
    """The workload as the API server shows it.

    rollout_in_progress: pods are replaced, their number changes, or one is not available.
    replacing: the same, but for pods that are merely not available.
    """

    found: bool
    desired_replicas: int = 0
    ready_replicas: int = 0
    rollout_in_progress: bool = False
    problem: Reason | None = None
    message: str = ""
    replacing: bool = False


@dataclass(frozen=True)
class Observation:
    """Everything `decide` may look at. Readings are pooled over engines (see observe.pool).

    Units: ttft, queue_time seconds; kv_usage and hit_ratio 0..1 (kv_usage of the hottest engine);
    preemptions per second of the hottest engine; running, waiting requests;
    prefill_rate computed prompt tokens per second of prefill; uncached_tokens computed prompt
    tokens per second; evicted_protected and evicted_tel_safe cached blocks evicted within the
    window, from T-LRU's regions (evicted_lru: in stock order); recomputed_tokens computed within
    the window although they had been cached before (counted low);
    prompt_tokens_per_request the mean length of a prompt, cached or not.
    fallback: in words, which source is read in place of the policy's, and why; empty if none.
    conflict: the older policy, or the foreign field manager, in words; empty if none. fleet: the
    switch of the operator's configuration. pods: all of the target, Ready or not.
    restart_elsewhere: which other policy's engine is or may be restarting, in words; empty if none.
    """

    target: TargetState
    engines: tuple[EngineObservation, ...]
    ttft: QuantileReading
    queue_time: Reading
    kv_usage: Reading
    preemptions: Reading
    hit_ratio: Reading
    running: Reading
    waiting: Reading
    prefill_rate: Reading
    uncached_tokens: Reading
    evicted_protected: Reading
    evicted_tel_safe: Reading
    evicted_lru: Reading
    document: KnobDocument | None = None
    conflict: str = ""
    fleet: FleetMode = FleetMode.AUTO
    prompt_tokens_per_request: Reading = Unknown(Reason.NOT_MEASURABLE, "not read")
    recomputed_tokens: Reading = Unknown(Reason.NOT_MEASURABLE, "not read")
    metric_names: Mapping[str, str] = field(default_factory=dict)
    fallback: str = ""
    pods: tuple[PodObservation, ...] = ()
    restart_elsewhere: str = ""
