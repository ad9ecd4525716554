"""One policy: its objective, what was decided, and what its engines did meanwhile."""

from __future__ import annotations

from evictune.api.reasons import Kind, Reason
from evictune.observe.dialects import (
    PLUGIN_EVICTED,
    PLUGIN_POLICY,
    PLUGIN_RECOMPUTED,
    Measure,
    names_of,
)
from grafana_foundation_sdk.builders.dashboard import Dashboard

from dashboards import panels, shared
from dashboards.panels import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, TEAL, Column, Query
from dashboards.query import (
    KEY,
    PODS,
    POLICIES,
    measured,
    own,
    plugin_rate,
    prompt_tokens,
    reading,
    regime,
)

UID = "evictune-policy"
# What only leads to another step, or to no change of values, is not marked.
_UNMARKED = {Reason.INTENDED, Reason.WRITTEN, Reason.REGIME_CHANGED, Reason.WRITE_REFUSED}
_MARKED = [each for each in Reason if each.kind is Kind.DECISION and each not in _UNMARKED]
_POD = "{{pod}} {{engine}}{{dp_rank}}"


def dashboard() -> Dashboard:
    """The dashboard."""
    decided = own(
        "evictune_last_decision_timestamp_seconds",
        f'{POLICIES},reason=~"{"|".join(_MARKED)}"',
        (*KEY, "reason"),
    )
    made = panels.dashboard(
        UID,
        "evictune / Policy",
        "One EvictionPolicy: is eviction the cause, what was changed, and did it help? Vertical "
        "marks are decisions.",
    ).annotation(panels.marks("Decisions", f"{decided} * 1000"))
    for each in _variables():
        made = made.with_variable(each)
    return panels.fill(
        made,
        {
            "Now": _figures(),
            "Objective": (_ttft(), _regimes(), _conditions()),
            "Values": (_applied(), _in_force(), _fractions()),
            "Cache": (_evicted(), _hits(), _tokens(), _recomputed()),
            "Load": (_usage(), _preemptions(), _requests(), _queueing()),
        },
    )


def _variables() -> tuple[panels.Variable, ...]:
    series, chosen = "evictune_ttft_threshold_seconds", 'namespace=~"$namespace"'
    engines = f"evictune_policy_engine_info{{{POLICIES}}}"
    return (
        panels.variable(
            "namespace", "Namespace", series, several=False, text="Namespace of the policy"
        ),
        panels.variable(
            "policy", "Policy", f"{series}{{{chosen}}}", several=False, text="The EvictionPolicy"
        ),
        panels.variable(
            "pod", "Engine pods", engines, several=True, text="Pods of the policy's target"
        ),
    )


def _figures() -> tuple[panels.Panel, ...]:
    ttft, limit = reading("ttft_seconds"), own("evictune_ttft_threshold_seconds", POLICIES)
    met = ((1, "met", GREEN), (0, "violated", RED))
    return (
        panels.figure(
            "Regime",
            "What limits the engines now: see docs/regimes.md. Only ReuseLost is mended by "
            "another eviction order.",
            Query(regime(POLICIES)),
            values=panels.regime_values(),
            none="not observed",
            runbook="evictune-capacity-bound",
        ),
        panels.figure(
            "Objectives",
            "Whether every objective of the policy is met; unknown while neither is certain, as "
            "without traffic.",
            Query(own("evictune_slo_met", POLICIES)),
            values=met,
            none="unknown",
            runbook="evictune-slo-burn-fast",
        ),
        panels.figure(
            "TTFT / threshold",
            "The time to first token at the policy's quantile, as a share of its threshold.",
            Query(f"{ttft} / {limit}"),
            unit="percentunit",
            steps=((0, GREEN), (0.9, ORANGE), (1, RED)),
            none="no reading",
        ),
        panels.figure(
            "xi kept",
            "Uncached tokens that a request may have when it comes back: T-LRU keeps what a "
            "conversation needs to stay within xi.",
            Query(own("evictune_applied_tokens", f'{POLICIES},knob="xi"')),
            none="stock LRU",
        ),
        panels.figure(
            "q_hat kept",
            "By how many tokens a conversation is expected to grow from one turn to the next.",
            Query(own("evictune_applied_tokens", f'{POLICIES},knob="q_hat"')),
            none="stock LRU",
        ),
        panels.figure(
            "Engine ranks",
            "Engine ranks of the policy's target that were seen.",
            Query(f"count({_engines()})"),
            none="none seen",
            runbook="evictune-metrics-lost",
        ),
    )


def _engines() -> str:
    return own("evictune_policy_engine_info", POLICIES, (*KEY, "pod", "engine"))


def _ttft() -> panels.Panel:
    panel = panels.lines(
        "TTFT at the policy's quantile, against its threshold",
        "The engine counts requests in buckets, so the quantile is known as an interval: the "
        "shaded band. The objective is met or violated only when the whole band lies on one side "
        "of the threshold. No upper bound: the quantile lies above the last bucket; give the "
        "engine finer ones with --custom-histogram-buckets.",
        Query(f"{reading('ttft_upper_seconds')} < Inf", "upper bound"),
        Query(reading("ttft_lower_seconds"), "lower bound"),
        Query(reading("ttft_seconds"), "estimate"),
        Query(own("evictune_ttft_threshold_seconds", POLICIES), "threshold"),
        unit="s",
        colours={"estimate": BLUE},
        width=24,
        runbook="evictune-slo-burn-fast",
    )
    return panels.limit(panels.band(panel, "upper bound", "lower bound", BLUE), "threshold")


def _regimes() -> panels.Panel:
    return panels.states(
        "Regime over time",
        "What limited the engines, over time. A gap: the target could not be looked at.",
        Query(regime(POLICIES), "{{policy}}"),
        panels.regime_values(),
        height=5,
        width=14,
        runbook="evictune-capacity-bound",
    )


def _conditions() -> panels.Panel:
    asked = own("evictune_condition_status", POLICIES, ("condition", "reason"))
    return panels.listing(
        "Conditions",
        "The conditions of the policy's status; `kubectl get evp -o yaml` shows their messages.",
        [Query(asked)],
        [
            Column("condition", "Condition"),
            Column("reason", "Reason"),
            Column(
                "Value",
                "Status",
                values=((1, "True", GREEN), (0, "False", RED), (-1, "Unknown", GREY)),
            ),
        ],
        width=10,
        height=5,
        runbook="evictune-policy-not-active",
    )


def _applied() -> panels.Panel:
    asked = own("evictune_applied_tokens", POLICIES, (*KEY, "knob"))
    return panels.lines(
        "xi and q_hat kept",
        "The values that evictune set and kept. xi: uncached tokens that a returning request may "
        "have; q_hat: by how much a conversation grows each turn. No line: stock LRU. Marks are "
        "decisions: a value acknowledged by every engine, kept, reverted.",
        Query(asked, "{{knob}}"),
        unit="suffix: tokens",
        colours={"xi": BLUE, "q_hat": TEAL},
        steps=True,
        runbook="evictune-knob-fight",
    )


def _in_force() -> panels.Panel:
    labels = "namespace, pod, engine, policy, xi_tokens, q_hat_tokens"
    stock = f'max by ({labels}) ({PLUGIN_POLICY}{{{PODS},policy="lru"}})'
    other = f'max by ({labels}) ({PLUGIN_POLICY}{{{PODS},policy!="lru"}})'
    return panels.lines(
        "Engine ranks by the values in force",
        "What the engines themselves say they use. After a change all of them should show the "
        "new values within seconds.",
        Query(f"count({stock})", "stock LRU"),
        Query(
            f"count by (xi_tokens, q_hat_tokens) ({other})",
            "xi {{xi_tokens}}, q_hat {{q_hat_tokens}}",
        ),
        unit="none",
        colours={"stock LRU": GREY},
        stacked=True,
        steps=True,
        runbook="evictune-policy-not-active",
    )


def _fractions() -> panels.Panel:
    labels = "namespace, pod, engine, gpu_memory_utilization"
    (name,) = names_of(Measure.CACHE_CONFIG)
    selector = f'{{__name__=~"{"|".join(name.spellings)}",{PODS}}}'
    found = f"max by ({labels}) ({selector})"
    return panels.lines(
        "Engine ranks by the memory fraction in force",
        "What the engines themselves say they were started with. While a change of the memory "
        "fraction is under way there are two; each step is one engine that restarted in place.",
        Query(f"count by (gpu_memory_utilization) ({found})", "{{gpu_memory_utilization}}"),
        unit="none",
        stacked=True,
        steps=True,
        width=24,
        runbook="evictune-capacity-bound",
    )


def _evicted() -> panels.Panel:
    return panels.lines(
        "Evicted blocks by region",
        "Cached KV blocks discarded to make room. tel-safe: their loss cannot break the "
        "objective, T-LRU takes them first. protected: nothing else was left; xi is too small for "
        "this pool. lru: evicted in stock order.",
        Query(plugin_rate(PLUGIN_EVICTED, ("region",)), "{{region}}"),
        unit="suffix: blocks/s",
        colours={"tel-safe": GREEN, "protected": RED, "lru": GREY},
        stacked=True,
    )


def _hits() -> panels.Panel:
    return shared.hit_ratio(
        "The share of prompt tokens found in the cache. It is no objective: a high ratio can "
        "come with a bad tail, when the few misses are long ones.",
        (),
        "hit ratio",
    )


def _tokens() -> panels.Panel:
    return panels.lines(
        "Prompt tokens, and those computed",
        "All tokens of prompts, against those that had to be prefilled because they were not in "
        "the cache. The gap is what the cache saves.",
        Query(prompt_tokens(()), "prompt"),
        Query(measured(Measure.COMPUTED_TOKENS, ()), "prefilled"),
        unit="suffix: tokens/s",
        colours={"prompt": GREY, "prefilled": BLUE},
    )


def _recomputed() -> panels.Panel:
    return panels.lines(
        "Evicted, then computed again",
        "Prompt tokens that were prefilled although they had been cached before: what eviction "
        "costs. Counted low; first touches are not in it, no cache can help those.",
        Query(plugin_rate(PLUGIN_RECOMPUTED, ()), "computed again"),
        unit="suffix: tokens/s",
        colours={"computed again": ORANGE},
    )


def _usage() -> panels.Panel:
    return shared.kv_usage(
        "The share of KV blocks held by running requests, of each engine rank. Blocks kept only "
        "for reuse do not count. Near 100 % with preemptions, no eviction order frees anything.",
        _POD,
    )


def _preemptions() -> panels.Panel:
    return shared.preemptions(
        "Running requests thrown back into the queue for want of KV blocks; each computes its "
        "prompt again.",
        _POD,
    )


def _requests() -> panels.Panel:
    return panels.lines(
        "Requests running and waiting",
        "Summed over the policy's engines. Waiting while KV usage is low: the limit is "
        "--max-num-seqs or --max-num-batched-tokens, not memory.",
        Query(measured(Measure.RUNNING, ()), "running"),
        Query(measured(Measure.WAITING, ()), "waiting"),
        unit="none",
        colours={"running": BLUE, "waiting": PURPLE},
    )


def _queueing() -> panels.Panel:
    seconds = measured(Measure.QUEUE_SECONDS, ())
    return panels.lines(
        "Mean time in the queue",
        "How long requests waited before they were first scheduled. It is part of the TTFT, and "
        "no eviction order shortens it.",
        Query(f"{seconds} / {measured(Measure.QUEUED_REQUESTS, ())}", "time in the queue"),
        unit="s",
        colours={"time in the queue": PURPLE},
    )
