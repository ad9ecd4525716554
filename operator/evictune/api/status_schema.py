"""The schema of status: what `evictune.api.status` writes, field by field.

Measured values are strings: a unit or a share, or the word Unknown or Idle; never NaN.
"""

from __future__ import annotations

from typing import Any

MAX_DECISIONS = 10
MAX_QUARANTINE = 32
MAX_DISRUPTIONS = 24
MAX_HOLDS = 24
# Written only where the memory fraction is a knob, or has been one, by their paths: a definition
# from before them keeps all that other policies need. `*` stands for anything.
OF_THE_MEMORY_FRACTION = (
    "status.*.gpuMemoryUtilization",
    "status.engines.kvBlocks",
    "status.pending.baseline.hitRatio",
    "status.pending.baseline.preemptionsPerSecond",
    "status.pending.pods",
    "status.holds",
    "status.shortage",
    "status.trial",
    "status.disruptions",
)
# More pods than a target has whose engines are restarted one after the other.
MAX_PODS = 1000


def status_schema() -> dict[str, Any]:
    """The schema of .status."""
    return _object(
        "What the operator sees, does and remembers. Written by the operator alone.",
        observedGeneration=_integer("Generation of the spec that this status is about."),
        conditions=_conditions(),
        regime=_object(
            "The diagnosis.",
            name=_string("What the engines are doing, such as Healthy or ReuseLost."),
            since=_time("Since when."),
            message=_string("The diagnosis in words, with the readings it rests on."),
        ),
        observed=_observed(),
        engines=_object(
            "The engines of the target.",
            total=_integer("Pods wanted."),
            ready=_integer("Pods ready."),
            acknowledged=_integer("Engines that show the wanted values in force."),
            ineligible=_integer("Engines that cannot use T-LRU."),
            gpuMemoryUtilization=_string("The memory fraction in force; more than one if several."),
            kvBlocks=_string("KV blocks of an engine; more than one number if they differ."),
            changedTime=_time("When pods were last seen to come, go or be replaced."),
        ),
        applied=_object(
            "The last values that were kept or restored.",
            revision=_integer("Revision of the knob document that carries them."),
            decisionID=_string("The decision they come from."),
            values=_values("The values."),
            expires=_time("When the engines stop following the knob document, unless renewed."),
        ),
        pending=_pending(),
        recommendation=_object(
            "What would be set.",
            target=_values("Within the bounds of spec.knobs."),
            uncapped=_values("Without bounds."),
            basis=_string("Why."),
        ),
        decisions=_list("The last transitions, newest last.", MAX_DECISIONS, _decision()),
        quarantine=_list(
            "Values tried and left, under which traffic, and until when.",
            MAX_QUARANTINE,
            _quarantined(),
        ),
        lastChangeTime=_time("When the last change was decided."),
        holds=_list(
            "What held a wish back at the last look, where engines may be restarted.",
            MAX_HOLDS,
            _object(
                "One reason.",
                reason=_string("In one word; docs/regimes.md explains each."),
                message=_string("In words."),
            ),
        ),
        shortage=_object(
            "Live requests hold the blocks, where the memory fraction may be raised for it.",
            since=_time("When that was first seen."),
            seen=_time("When it was last seen: after a quarter of a window without, it is over."),
        ),
        trial=_object(
            "The memory fraction kept last, which goes back where an engine fails after all.",
            decisionID=_string("The decision it comes from."),
            values_before=_values("What goes back."),
            until=_time("Until when an engine that ends by itself counts as its failure."),
            manifest=_string("What the engines' own command lines said then."),
            pods=_turns(),
        ),
        disruptions=_list(
            "When changes of the memory fraction were begun, within the last day.",
            MAX_DISRUPTIONS,
            _object("One change.", time=_time("When.")),
        ),
    )


def _turns() -> dict[str, Any]:
    turn = _object(
        "One pod.",
        name=_string("Its name."),
        uid=_string("Its UID."),
        revision=_integer("Revision of the knob document that asks it to restart."),
        restarts=_integer("How often its container had been restarted when its turn came."),
        startTime=_time("When its turn came."),
        backTime=_time("When it was seen to serve with the new fraction."),
        warmTime=_time("When its cache was seen to be warm."),
    )
    return _list("The pods that were restarted for it, in their order.", MAX_PODS, turn)


def _conditions() -> dict[str, Any]:
    condition = _object(
        "One aspect of the policy's state.",
        required=("type", "status", "lastTransitionTime", "reason", "message"),
        type=_string("Ready, TargetFound, MetricsAvailable, PolicyActive or SLOMet."),
        status={"enum": ["True", "False", "Unknown"], **_string("Whether it holds.")},
        observedGeneration=_integer("Generation of the spec that this is about."),
        lastTransitionTime=_time("When status last changed."),
        reason=_string("Why, in one word; docs/regimes.md explains each."),
        message=_string("Why, in words."),
    )
    schema = _list("Ready, TargetFound, MetricsAvailable, PolicyActive, SLOMet.", 16, condition)
    return schema | {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}


def _observed() -> dict[str, Any]:
    return _object(
        "The readings decided upon, over slo.ttft.window: a value, Idle or Unknown.",
        ttft=_object(
            "The objective's quantile of the time to first token, as histogram buckets bound it.",
            lower=_string("It is at least this."),
            upper=_string("It is at most this; +Inf: above the last bucket."),
            estimate=_string("Interpolated within the bucket."),
            requests=_string("Requests in the window."),
            aboveThreshold=_string("Share of requests above slo.ttft.threshold."),
        ),
        kvCacheUsage=_string("Share of KV blocks held by live requests, of the hottest engine."),
        preemptionsPerSecond=_string("Preemptions a second, of the hottest engine."),
        queueTime=_string("Mean time a request waited before its prefill began."),
        hitRatio=_string("Share of prompt tokens found in the prefix cache."),
        running=_string("Requests running."),
        waiting=_string("Requests waiting."),
        prefillTokensPerSecond=_string("Tokens computed per second of prefill."),
        uncachedTokensPerSecond=_string("Prompt tokens computed per second."),
        promptTokensPerRequest=_string("Mean length of a prompt, cached or not."),
        evictedProtected=_string("Cached blocks evicted although T-LRU protects them."),
        evictedTelSafe=_string("Cached blocks evicted that T-LRU gives away first."),
        evictedLru=_string("Cached blocks evicted in stock order."),
        recomputedTokens=_string("Tokens computed again because they were evicted; counted low."),
        metricNames=_list(
            "The engines' metrics in use.",
            32,
            _object(
                "One measure.",
                measure=_string("As docs/reference/metrics.md calls it."),
                name=_string("What the engines call it; several during an upgrade of them."),
            ),
        ),
    )


def _pending() -> dict[str, Any]:
    return _object(
        "The change under way.",
        decisionID=_string("Its identity."),
        revision=_integer("Revision of the knob document that carries it."),
        phase=_string(
            "Writing, Acknowledging or Settling; of the memory fraction Writing, Restarting and "
            "Settling for each pod, then Concluding."
        ),
        values_before=_values("What a revert restores."),
        to=_values("What is being set."),
        baseline=_object(
            "The readings when it was decided: the verdict compares with them.",
            ttftLower=_string("Lower bound of the quantile."),
            ttftUpper=_string("Upper bound of the quantile."),
            ttftEstimate=_string("The quantile, interpolated."),
            aboveThreshold=_string("Share of requests above the threshold."),
            uncachedTokensPerSecond=_string("Prompt tokens computed per second."),
            requests=_string("Requests in the window."),
            replicas=_integer("Pods wanted."),
            fingerprint=_string("The traffic, coarsely."),
            hitRatio=_string("Of the first pod: share of prompt tokens found in the cache."),
            preemptionsPerSecond=_string("Of the first pod."),
        ),
        pods=_turns(),
        reason=_string("Why."),
        startTime=_time("When it was decided."),
        acknowledgedTime=_time(
            "When the last engine acknowledged it; of the memory fraction, when the first passed."
        ),
        revertOf=_string("The decision that it takes back."),
    )


def _decision() -> dict[str, Any]:
    return _object(
        "One transition.",
        decisionID=_string("The decision it belongs to."),
        time=_time("When."),
        reason=_string("What happened, in one word."),
        message=_string("What happened, in words."),
        values_before=_values("The values before."),
        to=_values("The values after."),
    )


def _quarantined() -> dict[str, Any]:
    return _object(
        "A value that was tried and left.",
        values=_values("The value."),
        fingerprint=_string("The traffic under which it was tried, coarsely."),
        until=_time("When it may be tried again."),
        times=_integer("How often it was left: each time it stays away for twice as long."),
        reason=_string("Why it was left."),
        ttft=_string("The quantile measured with it."),
        tooSmall=_boolean("Whether more was protected with it than fits."),
    )


def _values(description: str) -> dict[str, Any]:
    return _object(
        f"{description} Empty: stock LRU.",
        xiTokens=_integer("xi in tokens."),
        qHatTokens=_integer("qHat in tokens."),
        gpuMemoryUtilization=_string("The memory fraction; absent: each manifest's own."),
    )


def _object(description: str, required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    """`values_before` stands for "from", which Python reserves."""
    properties = {("from" if k == "values_before" else k): v for k, v in properties.items()}
    schema: dict[str, Any] = {"type": "object", "description": description}
    if required:
        schema["required"] = list(required)
    return schema | {"properties": properties}


def _list(description: str, max_items: int, items: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "array",
        "description": description,
        "maxItems": max_items,
        "x-kubernetes-list-type": "atomic",
        "items": items,
    }


def _string(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


def _time(description: str) -> dict[str, Any]:
    return {"type": "string", "format": "date-time", "description": description}


def _integer(description: str) -> dict[str, Any]:
    return {"type": "integer", "format": "int64", "description": description}


def _boolean(description: str) -> dict[str, Any]:
    return {"type": "boolean", "description": description}
