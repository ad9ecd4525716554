"""Engines, one by one: with or without a policy."""

from __future__ import annotations

from evictune.observe.dialects import (
    PLUGIN_ELIGIBLE,
    PLUGIN_EVICTED,
    PLUGIN_POLICY,
    PLUGIN_RECOMPUTED,
    PLUGIN_REFUSED,
    Measure,
    names_of,
)
from grafana_foundation_sdk.builders.dashboard import Dashboard

from dashboards import panels, shared
from dashboards.panels import BLUE, GREEN, GREY, ORANGE, RED, Column, Query
from dashboards.query import PODS, RATE, measured, plugin_rate, prompt_tokens, quantile

UID = "evictune-engine"
_POD = ("namespace", "pod")
_RANKS = (*_POD, "engine")
_NAMES = (Column("namespace", "Namespace"), Column("pod", "Pod"), Column("engine", "Rank"))
_RANK = "{{pod}} {{engine}}{{dp_rank}}"


def dashboard() -> Dashboard:
    """The dashboard."""
    made = panels.dashboard(
        UID,
        "evictune / Engines",
        "Engines by pod and rank, whether or not a policy names them: latency, cache, evictions, "
        "and what the plugin has in force.",
    )
    for name, label, of, text in (
        ("namespace", "Namespace", panels.engines_of(), "Namespaces with engines"),
        ("pod", "Pods", panels.engines_of(',namespace=~"$namespace"'), "Pods with an engine"),
    ):
        made = made.with_variable(panels.variable(name, label, of, several=True, text=text))
    return panels.fill(
        made,
        {
            "In force": (_in_force(), _memory(), _refused()),
            "Latency": (_quantile(0.5), _quantile(0.99), _requests(), _queueing()),
            "Cache": (_evicted(), _hits(), _tokens(), _recomputed(), _usage(), _preemptions()),
            "What the plugin costs": (_change(), _documents()),
        },
    )


def _in_force() -> panels.Panel:
    values = (*_RANKS, "policy", "xi_tokens", "q_hat_tokens", "revision")
    return panels.listing(
        "Policy in force",
        "What each engine rank says it uses, and whether T-LRU can be used by it at all. An "
        "engine that is missing here does not show the plugin: see `evictune wire`.",
        [
            Query(f"max by ({', '.join(values)}) ({PLUGIN_POLICY}{{{PODS}}})"),
            Query(f"max by ({', '.join((*_RANKS, 'reason'))}) ({PLUGIN_ELIGIBLE}{{{PODS}}})"),
        ],
        [
            *_NAMES,
            Column("policy", "Policy"),
            Column("xi_tokens", "xi, tokens"),
            Column("q_hat_tokens", "q_hat, tokens"),
            Column("revision", "Revision"),
            Column("Value #B", "T-LRU", values=((1, "usable", GREEN), (0, "not usable", RED))),
            Column("reason", "Why not"),
        ],
        hidden=("Value #A",),
        height=6,
        none="no engine shows the plugin",
        runbook="evictune-policy-not-active",
    )


def _memory() -> panels.Panel:
    labels = ("block_size", "num_gpu_blocks", "kv_cache_size_tokens")
    (name,) = names_of(Measure.CACHE_CONFIG)
    spelled = "|".join(name.spellings)
    keep = ", ".join((*_RANKS, *labels))
    return panels.listing(
        "Size of the KV cache",
        "As the engine was started. What running requests do not hold of it keeps blocks for "
        "reuse.",
        [Query(f'max by ({keep}) ({{__name__=~"{spelled}",{PODS}}})')],
        [
            *_NAMES,
            Column("num_gpu_blocks", "Blocks"),
            Column("block_size", "Tokens a block"),
            Column("kv_cache_size_tokens", "Tokens"),
        ],
        hidden=("Value",),
        width=14,
        height=5,
        none="no engine tells",
    )


def _refused() -> panels.Panel:
    keep = ", ".join((*_RANKS, "reason", "message"))
    return panels.listing(
        "Knob documents refused now",
        "The document on the engine's disk cannot be used; what was in force stays until it "
        "expires. Refused ones are told with the reason.",
        [Query(f"max by ({keep}) ({PLUGIN_REFUSED}{{{PODS}}})")],
        [Column("pod", "Pod"), Column("reason", "Reason"), Column("message", "Message")],
        hidden=("Value", "namespace", "engine"),
        width=10,
        height=5,
        none="none",
        runbook="evictune-policy-not-active",
    )


def _quantile(share: float) -> panels.Panel:
    return panels.lines(
        f"TTFT p{share * 100:g}",
        "Time from a request's arrival to its first token, interpolated within the engine's "
        "buckets: as coarse as these are. Policies judge the interval instead.",
        Query(quantile(share, _POD), "{{pod}}"),
        unit="s",
    )


def _requests() -> panels.Panel:
    return panels.lines(
        "Requests running and waiting",
        "Waiting while KV usage is low: the limit is --max-num-seqs or "
        "--max-num-batched-tokens, not memory.",
        Query(measured(Measure.RUNNING, _POD), "{{pod}} running"),
        Query(measured(Measure.WAITING, _POD), "{{pod}} waiting"),
        unit="none",
    )


def _queueing() -> panels.Panel:
    seconds = measured(Measure.QUEUE_SECONDS, _POD)
    return panels.lines(
        "Mean time in the queue",
        "How long requests waited before they were first scheduled.",
        Query(f"{seconds} / {measured(Measure.QUEUED_REQUESTS, _POD)}", "{{pod}}"),
        unit="s",
    )


def _evicted() -> panels.Panel:
    by = (*_POD, "region")
    return panels.lines(
        "Evicted blocks by region",
        "Cached KV blocks discarded to make room. tel-safe: their loss cannot break the "
        "objective. protected: nothing else was left. lru: in stock order.",
        Query(plugin_rate(PLUGIN_EVICTED, by), "{{pod}} {{region}}"),
        unit="suffix: blocks/s",
    )


def _hits() -> panels.Panel:
    return shared.hit_ratio("The share of prompt tokens found in the cache.", _POD, "{{pod}}")


def _tokens() -> panels.Panel:
    return panels.lines(
        "Prompt tokens, and those computed",
        "All tokens of prompts, against those that had to be prefilled.",
        Query(prompt_tokens(_POD), "{{pod}} prompt"),
        Query(measured(Measure.COMPUTED_TOKENS, _POD), "{{pod}} prefilled"),
        unit="suffix: tokens/s",
    )


def _recomputed() -> panels.Panel:
    return panels.lines(
        "Evicted, then computed again",
        "Prompt tokens that were prefilled although they had been cached before. Counted low.",
        Query(plugin_rate(PLUGIN_RECOMPUTED, _POD), "{{pod}}"),
        unit="suffix: tokens/s",
    )


def _usage() -> panels.Panel:
    return shared.kv_usage(
        "The share of KV blocks held by running requests. Blocks kept only for reuse do not count.",
        _RANK,
    )


def _preemptions() -> panels.Panel:
    return shared.preemptions(
        "Running requests thrown back into the queue for want of KV blocks.",
        _RANK,
    )


def _change() -> panels.Panel:
    by = (*_POD,)
    seconds = plugin_rate("evictune_knob_change_seconds_sum", by)
    return panels.lines(
        "Time of the scheduler's thread spent on changes",
        "The share of time that applying new values took from the engine's scheduler.",
        Query(seconds, "{{pod}}"),
        unit="percentunit",
        colours={},
    )


def _documents() -> panels.Panel:
    keep = ", ".join((*_RANKS, "reason"))
    refused = f"max by ({keep}) (increase(evictune_refused_documents_total{{{PODS}}}[{RATE}]))"
    changes = f"increase(evictune_knob_change_seconds_count{{{PODS}}}[{RATE}])"
    return panels.lines(
        "Knob documents taken and refused",
        "Changes applied by the engines' schedulers, and documents that the plugin refused or "
        "that expired. Renewals without a change are not counted.",
        Query(f"sum(max by ({', '.join(_RANKS)}) ({changes}))", "applied"),
        Query(f"sum by (reason) ({refused})", "{{reason}}"),
        unit="none",
        colours={"applied": BLUE, "Expired": ORANGE, "Malformed": RED, "Foreign": GREY},
        runbook="evictune-policy-not-active",
    )
