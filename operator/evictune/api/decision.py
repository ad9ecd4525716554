"""What `decide` returns: effects for `act`, the memory to keep, and what to tell people.

decide(policy, memory, observation, now) -> Decision. `now` is seconds since the epoch, handed in.

The write protocol is driven by facts, so that a crash between two steps resumes by itself: memory
(status.pending) is written first, under a resourceVersion precondition; then the effects are
carried out; the next call of decide reads from the observation how far that got. Every effect is
idempotent: carrying it out twice changes nothing more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum

from evictune.api.knobs import KnobValues, PodKnobs
from evictune.api.reasons import Reason


class Phase(StrEnum):
    """How far a change has come. Restarting, Concluding: only one of the memory fraction."""

    WRITING = "Writing"
    ACKNOWLEDGING = "Acknowledging"
    RESTARTING = "Restarting"
    SETTLING = "Settling"
    CONCLUDING = "Concluding"


@dataclass(frozen=True)
class Baseline:
    """What the readings were when a change was decided: the verdict compares with it.

    ttft_lower, ttft_upper seconds; share_above 0..1 of `requests`; uncached_tokens per second.
    replicas wanted, and the traffic (see decide.traffic): a verdict under others would be none.
    hit_ratio 0..1, preemptions a second: of the one pod that a change of the memory fraction begins
    with; the other readings are that pod's too then. None: unknown.
    """

    ttft_lower: float | None
    ttft_upper: float | None
    ttft_estimate: float | None
    share_above: float | None
    uncached_tokens: float | None
    requests: float | None = None
    replicas: int | None = None
    fingerprint: str = ""
    hit_ratio: float | None = None
    preemptions: float | None = None


@dataclass(frozen=True)
class Turn:
    """One pod's turn in a change of the memory fraction; times in seconds since the epoch.

    revision: of the document that asks it. restarts: of its container, as they were counted when
    its turn began. back_time: when it was
    first seen to serve with the new fraction. warm_time: when its cache was first seen to be warm.
    """

    pod: str
    uid: str
    revision: int
    restarts: int
    start_time: float
    back_time: float | None = None
    warm_time: float | None = None


@dataclass(frozen=True)
class Pending:
    """A change under way. `change_from` is what a revert restores.

    turns: of the memory fraction, the pods that were restarted, the last one is the one whose turn
    it is.
    """

    decision_id: str
    revision: int
    phase: Phase
    change_from: KnobValues
    change_to: KnobValues
    baseline: Baseline
    reason: Reason
    start_time: float
    acknowledged_time: float | None = None
    revert_of: str = ""
    turns: tuple[Turn, ...] = ()

    @property
    def of_memory(self) -> bool:
        """Whether engines are restarted for it."""
        return self.change_from.fraction != self.change_to.fraction

    @property
    def turn(self) -> Turn | None:
        """The pod whose turn it is."""
        return self.turns[-1] if self.turns else None

    @property
    def restarting(self) -> bool:
        """Whether an engine is asked to restart, or is away for it."""
        awaited = self.phase in (Phase.WRITING, Phase.RESTARTING)
        return self.of_memory and awaited and self.turn is not None


@dataclass(frozen=True)
class Trial:
    """A memory fraction that was kept, and what goes back where it fails after all.

    Until `until`, seconds since the epoch, an engine that ends by itself counts as its failure.
    manifest: what every pod's command line said then; None: not the same, or not known.
    """

    decision_id: str
    values_before: KnobValues
    until: float
    manifest: Decimal | None = None
    turns: tuple[Turn, ...] = ()


@dataclass(frozen=True)
class Applied:
    """The last change that was kept, or restored."""

    revision: int
    decision_id: str
    values: KnobValues


@dataclass(frozen=True)
class DecisionRecord:
    """One transition, as status.decisions, the Event, the log line and the counter show it."""

    decision_id: str
    time: float
    reason: Reason
    message: str
    change_from: KnobValues | None = None
    change_to: KnobValues | None = None


@dataclass(frozen=True)
class Quarantined:
    """A value that was worse, and under which traffic; it may be tried again after `until`.

    values: an order of eviction, or a memory fraction alone.
    fingerprint: coarse description of the traffic (see decide.traffic).
    times: how often it was left; each time it stays away for twice as long.
    ttft: the p-quantile's estimate measured with it, seconds, so that the best one tried is known.
    """

    values: KnobValues
    fingerprint: str
    until: float
    reason: Reason
    ttft: float | None = None
    too_small: bool = False
    times: int = 1


@dataclass(frozen=True)
class Scale:
    """Pods wanted; `changed`: when pods were last seen to come, go or be replaced, None: never."""

    replicas: int
    changed: float | None = None


@dataclass(frozen=True)
class Recommendation:
    """What decide would set: within bounds (target), without them (uncapped), and why (basis)."""

    target: KnobValues
    uncapped: KnobValues
    basis: str


@dataclass(frozen=True)
class RegimeState:
    """The diagnosis now, since when (seconds since the epoch), in words."""

    name: Reason
    since: float
    message: str


@dataclass(frozen=True)
class Shortage:
    """Live requests hold the blocks: since when, and when last seen, seconds since the epoch."""

    since: float
    seen: float


@dataclass(frozen=True)
class Memory:
    """All that survives a restart of the operator: it lives in the policy's status."""

    regime: RegimeState | None = None
    pending: Pending | None = None
    applied: Applied | None = None
    recommendation: Recommendation | None = None
    decisions: tuple[DecisionRecord, ...] = ()
    quarantine: tuple[Quarantined, ...] = ()
    last_change_time: float | None = None
    scale: Scale | None = None
    shortage: Shortage | None = None
    trial: Trial | None = None
    # When changes of the memory fraction were begun, within the last day.
    disruptions: tuple[float, ...] = ()


class ConditionType(StrEnum):
    """The policy's conditions."""

    READY = "Ready"
    TARGET_FOUND = "TargetFound"
    METRICS_AVAILABLE = "MetricsAvailable"
    POLICY_ACTIVE = "PolicyActive"
    SLO_MET = "SLOMet"


@dataclass(frozen=True)
class Condition:
    """status: True, False or None (the API's "Unknown")."""

    type: ConditionType
    status: bool | None
    reason: Reason
    message: str


@dataclass(frozen=True)
class WriteKnobs:
    """Bring the knob document to this revision and these values, valid for ttl seconds.

    Renewing is the same effect with the revision unchanged. pods: entries in place of the values.
    """

    revision: int
    values: KnobValues
    ttl: float
    pods: Mapping[str, PodKnobs] = field(default_factory=dict)


Effect = WriteKnobs


@dataclass(frozen=True)
class Decision:
    """The outcome of one tick. `holds`: the guardrails that held a wish back, first first.

    `next_check` is when, seconds from now, something may change without a new observation being
    due (acknowledgement, settle end); None: at the policy's interval.
    """

    memory: Memory
    conditions: tuple[Condition, ...]
    effects: tuple[Effect, ...] = ()
    audit: tuple[DecisionRecord, ...] = ()
    holds: tuple[tuple[Reason, str], ...] = field(default=())
    next_check: float | None = None
