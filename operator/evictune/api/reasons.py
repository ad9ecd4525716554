"""The one list of reasons.

A member is what a condition, an Event, the metric `evictune_decisions_total`, a log line and the
generated reference page all call the same thing. Adding a reason is adding a line here.
"""

from __future__ import annotations

from enum import Enum, StrEnum


class Kind(Enum):
    """Where a reason is used."""

    REGIME = "what the engines are doing"
    READING = "why a reading has no value"
    HOLD = "why nothing was changed"
    DECISION = "a step of a change"
    RESOURCE = "the state of the policy and of what it names"


class Reason(StrEnum):
    """A CamelCase word, as Kubernetes conditions want it, with its meaning and its remedy."""

    kind: Kind
    meaning: str
    remedy: str

    def __new__(cls, value: str, kind: Kind, meaning: str, remedy: str = "") -> Reason:
        member = str.__new__(cls, value)
        member._value_ = value
        member.kind = kind
        member.meaning = meaning
        member.remedy = remedy
        return member

    # Regimes, in the order in which they are tried: the first that fits is the regime.
    UNKNOWN = (
        "Unknown",
        Kind.REGIME,
        "A reading that the diagnosis needs is missing.",
        "See the condition MetricsAvailable for the reading and its cause.",
    )
    IDLE = ("Idle", Kind.REGIME, "No request finished its prefill within the window.")
    NOT_ELIGIBLE = (
        "NotEligible",
        Kind.REGIME,
        "T-LRU cannot be used by at least one engine.",
        "See evictune_engine_eligible on the engine's port 9410; stock LRU stays in force.",
    )
    SETTLING = (
        "Settling",
        Kind.REGIME,
        "A change was made and its effect is still being awaited.",
    )
    STALLED = (
        "Stalled",
        Kind.REGIME,
        "Requests wait, yet none got its first token within the window: the engine makes no "
        "progress, or its metrics stand still.",
        "See the engine's log. Where its prefills take longer than slo.ttft.window, lengthen that.",
    )
    HEALTHY = ("Healthy", Kind.REGIME, "Every objective is met.")
    BORDERLINE = (
        "Borderline",
        Kind.REGIME,
        "An objective is within tolerance of its limit: neither met nor violated.",
    )
    QUEUE_BOUND = (
        "QueueBound",
        Kind.REGIME,
        "Requests wait although KV blocks are free.",
        "Raise --max-num-seqs or --max-num-batched-tokens, or add replicas.",
    )
    CAPACITY_BOUND = (
        "CapacityBound",
        Kind.REGIME,
        "Running requests hold the KV blocks: another eviction order frees nothing.",
        "Lower the concurrency, add replicas, or give the KV cache more memory.",
    )
    REUSE_LOST = (
        "ReuseLost",
        Kind.REGIME,
        "Prompts are prefilled again because their cached blocks were evicted.",
        "xi_tokens decides what is evicted first; evictune searches for the value.",
    )
    NO_REUSE = (
        "NoReuse",
        Kind.REGIME,
        "An objective is violated, yet no cached block was evicted, or what is prefilled had not "
        "been cached before: no eviction order would help.",
        "Relax slo.ttft.threshold, add replicas, or shorten the prompts.",
    )

    # Why a reading has no value.
    NO_SERIES = (
        "NoSeriesForTarget",
        Kind.READING,
        "The source has no series for the target's pods.",
        "Check that the pods are scraped and carry the labels namespace and pod.",
    )
    SOURCE_UNAVAILABLE = (
        "SourceUnavailable",
        Kind.READING,
        "The metrics source did not answer in time or refused.",
        "Check the source's address and credentials in the operator's configuration.",
    )
    CLUSTER_UNAVAILABLE = (
        "ClusterUnavailable",
        Kind.READING,
        "The API server did not answer in time or refused to show the target.",
        "Check the operator's permissions and its connection to the API server.",
    )
    SOURCE_UNDEFINED = (
        "SourceUndefined",
        Kind.READING,
        "spec.metrics.source names a source that the administrator has not defined.",
        "Name one of the sources in the operator's configuration, or have it added there.",
    )
    INCOMPLETE_COVERAGE = (
        "IncompleteCoverage",
        Kind.READING,
        "Some ready engines have no series yet.",
    )
    TOO_FEW_SAMPLES = (
        "TooFewSamples",
        Kind.READING,
        "Fewer requests in the window than the quantile needs.",
        "Lengthen slo.ttft.window or lower slo.ttft.minRequests.",
    )
    NOT_FINITE = ("NotFinite", Kind.READING, "The source gave NaN or an infinite value.")
    OUT_OF_RANGE = (
        "OutOfRange",
        Kind.READING,
        "The value cannot be what its name says, such as a usage of 87.",
    )
    IMPLAUSIBLE = (
        "Implausible",
        Kind.READING,
        "Every observation fell into the first bucket: the histogram says nothing.",
    )
    WARMING_UP = (
        "WarmingUp",
        Kind.READING,
        "Not observed for long enough to compute a rate.",
    )
    BUCKET_TOO_COARSE = (
        "BucketTooCoarse",
        Kind.READING,
        "The quantile's bucket spans the threshold: neither met nor violated.",
        "Start the engine with finer --custom-histogram-buckets around the threshold.",
    )
    STALE_GAUGE = (
        "StaleGauge",
        Kind.READING,
        "A gauge reads high although nothing runs or waits.",
    )
    NOT_MEASURABLE = (
        "NotMeasurable",
        Kind.READING,
        "This engine does not expose what the objective needs.",
    )

    # Why nothing was changed: the guardrails, in the order in which they are asked.
    SUSPENDED = ("Suspended", Kind.HOLD, "spec.suspend is true: values in force stay as they are.")
    FLEET_SWITCH = (
        "FleetSwitch",
        Kind.HOLD,
        "fleet.mode of the operator's configuration holds every policy.",
        "The administrator sets fleet.mode to Auto: then each policy's own mode counts.",
    )
    OBSERVE_ONLY = ("ObserveOnly", Kind.HOLD, "spec.mode is Observe.")
    RECOMMEND_ONLY = (
        "RecommendOnly",
        Kind.HOLD,
        "spec.mode is Recommend: the value is shown, not written.",
        "Set spec.mode to Auto to let evictune write it.",
    )
    SAMPLES = ("WaitingForSamples", Kind.HOLD, "The readings are not yet enough to judge by.")
    QUARANTINED = (
        "Quarantined",
        Kind.HOLD,
        "This value was tried under like traffic and was worse.",
    )
    COOLDOWN = ("Cooldown", Kind.HOLD, "The last change is less than behavior.cooldown ago.")
    WITHIN_TOLERANCE = (
        "WithinTolerance",
        Kind.HOLD,
        "The gain expected is smaller than behavior.tolerance.",
    )
    ROLLOUT_IN_PROGRESS = (
        "RolloutInProgress",
        Kind.HOLD,
        "The target is rolling out or scaling.",
    )
    REPLICAS_CHANGED = (
        "ReplicasChanged",
        Kind.HOLD,
        "Pods came, went or were replaced: caches are cold, and the window holds readings from "
        "before.",
        "It waits for settle and one window; an autoscaler that never rests keeps it waiting.",
    )
    FIGHT_DETECTED = (
        "FightDetected",
        Kind.HOLD,
        "Somebody takes the knob document away or sets it back, again and again: it is left alone.",
        "Find in the API server's audit log who does, and have the ConfigMap left out there.",
    )
    AT_BOUND = (
        "AtBound",
        Kind.HOLD,
        "The value wanted lies outside spec.knobs.",
        "Widen the bounds.",
    )
    EXHAUSTED = (
        "TargetOutOfReach",
        Kind.HOLD,
        "No value within bounds meets the target; the best one found stays in force.",
        "Relax slo.ttft.threshold, add replicas, or give the KV cache more memory.",
    )
    NO_KNOBS = ("NoKnobs", Kind.HOLD, "spec.knobs names nothing that may be turned.")

    # Why no engine is restarted to change its memory fraction, in the order in which it is asked.
    MEMORY_NOT_ELIGIBLE = (
        "MemoryNotEligible",
        Kind.HOLD,
        "An engine cannot take its memory fraction from the knob document.",
        "See evictune_memory_eligible on the engine's port 9410; docs/reference/plugin.md says "
        "what each reason asks for.",
    )
    FRACTION_NOT_IN_FORCE = (
        "FractionNotInForce",
        Kind.HOLD,
        "An engine does not show its memory fraction, or has another than the rest.",
        "An engine takes the fraction of the knob document when it starts: restart that pod.",
    )
    DISRUPTION_NEVER = (
        "DisruptionNever",
        Kind.HOLD,
        "behavior.disruption.policy is Never: a memory fraction is recommended, not set.",
        "Set behavior.disruption.policy to WhenRedundant to have engines restarted in place.",
    )
    NOT_REDUNDANT = (
        "NotRedundant",
        Kind.HOLD,
        "No other engine would be Ready while one restarts.",
        "Add a replica, or set behavior.disruption.policy to Allow.",
    )
    MIN_READY = (
        "MinReady",
        Kind.HOLD,
        "Fewer engines than behavior.disruption.minReady would be Ready while one restarts.",
        "Add a replica, or lower minReady.",
    )
    ENGINE_AWAY = (
        "EngineAway",
        Kind.HOLD,
        "An engine is not Ready: never are two away at once.",
    )
    RESTART_ELSEWHERE = (
        "RestartElsewhere",
        Kind.HOLD,
        "An engine of another policy is restarting, or may be: one at a time in the whole fleet.",
    )
    OUTSIDE_WINDOW = (
        "OutsideWindow",
        Kind.HOLD,
        "No window of behavior.disruption.windows is open.",
        "It waits for the next one; widen the windows if that is too late.",
    )
    MAX_PER_DAY = (
        "MaxPerDay",
        Kind.HOLD,
        "behavior.disruption.maxPerDay changes of the memory fraction were begun within 24 hours.",
    )
    STORM = (
        "Storm",
        Kind.HOLD,
        "Requests pile up faster than the engines serve them: taking one away would make it worse.",
        "Lower the concurrency or add replicas; policy Allow restarts engines all the same.",
    )
    GAIN_TOO_SMALL = (
        "GainTooSmall",
        Kind.HOLD,
        "A step of the memory fraction would cover too little of what waiting requests need: a "
        "restart must be worth more than a live change.",
        "Lower the concurrency or add replicas; a larger step gains more.",
    )
    ENGINE_RESTARTING = (
        "EngineRestarting",
        Kind.HOLD,
        "An engine was asked to restart, and does not serve with the new memory fraction yet.",
    )

    # Steps of a change.
    INTENDED = ("Intended", Kind.DECISION, "A change was decided and written down.")
    WRITTEN = ("Written", Kind.DECISION, "The knob document carries the change.")
    ACKNOWLEDGED = ("Acknowledged", Kind.DECISION, "Every ready engine has the change in force.")
    KEPT = ("Kept", Kind.DECISION, "The change helped and stays.")
    NO_DIFFERENCE = (
        "NoDifference",
        Kind.DECISION,
        "The change made no difference beyond tolerance; it stays, and the search goes on from it.",
    )
    INCONCLUSIVE = (
        "Inconclusive",
        Kind.DECISION,
        "Replicas or traffic changed before the change could be judged; it stays, unproven, and "
        "the search goes on from it.",
    )
    REVERTED = (
        "Reverted",
        Kind.DECISION,
        "The change did not help: the value before it is in force again.",
    )
    ENGINE_RESTARTED = (
        "EngineRestarted",
        Kind.DECISION,
        "An engine serves with the new memory fraction, after a restart in place.",
    )
    CANARY_PASSED = (
        "CanaryPassed",
        Kind.DECISION,
        "The first engine is the better for the new memory fraction: the others follow.",
    )
    ENGINE_FAILED = (
        "EngineFailed",
        Kind.DECISION,
        "An engine did not start with the new memory fraction, or ended with it.",
        "See the log of the container that ended (kubectl logs --previous). CUDA out of memory is "
        "exit code 1, not OOMKilled.",
    )
    MANIFEST_CHANGED = (
        "ManifestChanged",
        Kind.DECISION,
        "The workload's owner changed its own memory fraction: that counts from then on.",
    )
    ABANDONED = (
        "Abandoned",
        Kind.DECISION,
        "The change was given up before it could be judged.",
    )
    RESTORED = (
        "Restored",
        Kind.DECISION,
        "The knob document had been deleted or set back, and is written again.",
    )
    RECOMMENDED = ("Recommended", Kind.DECISION, "The value wanted changed; nothing was written.")
    REGIME_CHANGED = ("RegimeChanged", Kind.DECISION, "The diagnosis changed.")

    WRITE_REFUSED = (
        "WriteRefused",
        Kind.DECISION,
        "The API server refused the knob document; it is tried again at each tick.",
        "Grant the operator get, create and patch of ConfigMaps in the policy's namespace.",
    )

    # The policy and what it names.
    READY = ("Ready", Kind.RESOURCE, "The policy is being followed.")
    DEFINITION_OUTDATED = (
        "DefinitionOutdated",
        Kind.RESOURCE,
        "The EvictionPolicy definition is older than the operator, and would drop what it "
        "remembers: nothing is written.",
        "Apply the definition that `evictune crd` prints.",
    )
    INVALID = ("InvalidSpec", Kind.RESOURCE, "A field of the policy cannot be used.")
    CONFLICT = (
        "Conflict",
        Kind.RESOURCE,
        "An older policy has the same target, or another manager owns the knob document.",
        "Delete one of the two, or give it another target.",
    )
    TARGET_FOUND = ("TargetFound", Kind.RESOURCE, "The target exists and has ready engines.")
    TARGET_MISSING = ("TargetMissing", Kind.RESOURCE, "spec.targetRef names nothing that exists.")
    NO_READY_ENGINES = ("NoReadyEngines", Kind.RESOURCE, "No pod of the target is ready.")
    AMBIGUOUS_CONTAINER = (
        "AmbiguousContainer",
        Kind.RESOURCE,
        "More than one container looks like an engine.",
        "Set spec.containerName.",
    )
    NO_ENGINE_CONTAINER = (
        "NoEngineContainer",
        Kind.RESOURCE,
        "No container of the pod looks like an engine.",
        "Set spec.containerName.",
    )
    INVALID_ANNOTATION = (
        "InvalidAnnotation",
        Kind.RESOURCE,
        "An annotation of a pod cannot be used.",
        "Write what the message asks for into the pod template.",
    )
    METRICS_AVAILABLE = ("MetricsAvailable", Kind.RESOURCE, "Every reading needed has a value.")
    POLICY_ACTIVE = (
        "PolicyActive",
        Kind.RESOURCE,
        "Every ready engine has the wanted values in force.",
    )
    POLICY_NOT_ACTIVE = (
        "PolicyNotActive",
        Kind.RESOURCE,
        "An engine does not show the plugin, or does not have the wanted values in force.",
        "Wire the workload: `evictune wire FILE`; see the engine's port 9410.",
    )
    STOCK = ("StockLRU", Kind.RESOURCE, "Nothing is set: every engine evicts by stock LRU.")
    SLO_MET = ("ObjectivesMet", Kind.RESOURCE, "Every objective is met.")
    SLO_VIOLATED = ("ObjectiveViolated", Kind.RESOURCE, "An objective is violated.")
    SLO_UNCERTAIN = (
        "ObjectiveUncertain",
        Kind.RESOURCE,
        "The interval of a reading spans its objective.",
    )


# By the word that status and Events show.
REASONS: dict[str, Reason] = {reason.value: reason for reason in Reason}
