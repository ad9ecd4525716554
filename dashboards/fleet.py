"""All policies: in which state they are, and whose objective is furthest from met."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard

from dashboards import panels
from dashboards.panels import GREEN, GREY, ORANGE, RED, Column, Query
from dashboards.query import KEY, NAMESPACES, own, regime

UID = "evictune-fleet"
_MET = own("evictune_slo_met")
_TTFT = own("evictune_reading", f'{NAMESPACES},reading="ttft_seconds"')
_LIMIT = own("evictune_ttft_threshold_seconds")
_SHARE = f"{_TTFT} / {_LIMIT}"
_POLICY = "/d/evictune-policy?var-datasource=${datasource}&${__url_time_range}"
_POLICY += "&var-namespace=${__data.fields.namespace}&var-policy=${__data.fields.policy}"
_NAMES = (Column("namespace", "Namespace"), Column("policy", "Policy", link=_POLICY))


def dashboard() -> Dashboard:
    """The dashboard."""
    made = panels.dashboard(
        UID,
        "evictune / Fleet",
        "Every EvictionPolicy: what limits its engines now, and how far its objective is from met.",
    ).with_variable(
        panels.variable(
            "namespace",
            "Namespace",
            "evictune_ttft_threshold_seconds",
            several=True,
            text="Namespaces of the policies",
        )
    )
    return panels.fill(
        made,
        {
            "Now": _figures(),
            "Objectives": (_worst(), _shares(), _by_regime(), _regimes()),
            "What to look at": (_wrong(), _decided()),
        },
    )


def _figures() -> tuple[panels.Panel, ...]:
    nothing = "or vector(0)"
    return (
        panels.figure(
            "Policies",
            "EvictionPolicies that the operator follows in these namespaces.",
            Query(f"count({_LIMIT}) {nothing}"),
        ),
        panels.figure(
            "Objective met",
            "Policies whose every objective is met.",
            Query(f"count({_MET} == 1) {nothing}"),
            steps=((1, GREEN),),
        ),
        panels.figure(
            "Objective violated",
            "Policies with an objective that is violated: the readings leave no doubt.",
            Query(f"count({_MET} == 0) {nothing}"),
            steps=((0, GREEN), (1, RED)),
            runbook="evictune-slo-burn-fast",
        ),
        panels.figure(
            "Objective unknown",
            "Policies of which neither can be said: no traffic, too few requests, a reading "
            "missing, or buckets too coarse around the threshold.",
            Query(f"count({_LIMIT} unless {_MET}) {nothing}"),
            steps=((0, GREY), (1, ORANGE)),
        ),
        panels.figure(
            "Not in force",
            "Policies of which an engine does not have the wanted values in force, or does not "
            "show the plugin.",
            Query(f"count({_condition('PolicyActive')} == 0) {nothing}"),
            steps=((0, GREEN), (1, ORANGE)),
            runbook="evictune-policy-not-active",
        ),
        panels.figure(
            "Values in quarantine",
            "Values of xi and q_hat that were tried, were worse, and are not tried again for now.",
            Query(f"sum({own('evictune_quarantined_values')}) {nothing}"),
            runbook="evictune-quarantine-growing",
        ),
    )


def _condition(name: str) -> str:
    return own("evictune_condition_status", f'{NAMESPACES},condition="{name}"')


def _worst() -> panels.Panel:
    return panels.listing(
        "Worst objectives",
        "Policies by their time to first token (TTFT) as a share of its threshold, worst first: "
        "above 100 % the objective is missed. The TTFT is an estimate within the engine's bucket. "
        "A policy opens its own dashboard.",
        [
            Query(_SHARE),
            Query(_TTFT),
            Query(_LIMIT),
            Query(regime(NAMESPACES)),
        ],
        [
            *_NAMES,
            Column("Value #A", "TTFT / threshold", "percentunit"),
            Column("Value #B", "TTFT", "s"),
            Column("Value #C", "Threshold", "s"),
            Column("Value #D", "Regime", values=panels.regime_values()),
        ],
        sort="TTFT / threshold",
        width=12,
        none="no policy with traffic",
        runbook="evictune-slo-burn-slow",
    )


def _shares() -> panels.Panel:
    panel = panels.lines(
        "TTFT as a share of its threshold",
        "One line a policy; 100 % is the threshold of each. Policies without a reading have no "
        "line.",
        Query(_SHARE, "{{namespace}}/{{policy}}"),
        Query("vector(1)", "threshold"),
        unit="percentunit",
    )
    return panels.limit(panel, "threshold")


def _by_regime() -> panels.Panel:
    counted = own("evictune_regime_info", by=(*KEY, "regime"))
    return panels.lines(
        "Policies by regime",
        "How many policies are in each regime: what limits their engines. Healthy: every "
        "objective is met. ReuseLost: prompts are computed again because their blocks were "
        "evicted, which evictune mends. CapacityBound and QueueBound: the cause is not eviction.",
        Query(f"sum by (regime) ({counted})", "{{regime}}"),
        unit="none",
        colours=panels.REGIME_COLOURS,
        stacked=True,
        steps=True,
        width=10,
    )


def _regimes() -> panels.Panel:
    return panels.states(
        "Regime of each policy",
        "One line a policy, over time. A gap: the target could not be looked at.",
        Query(regime(NAMESPACES), "{{namespace}}/{{policy}}"),
        panels.regime_values(),
        width=14,
        height=8,
    )


def _wrong() -> panels.Panel:
    asked = own("evictune_condition_status", NAMESPACES, (*KEY, "condition", "reason"))
    values = ((0, "False", RED), (-1, "Unknown", GREY))
    return panels.listing(
        "Conditions that are not True",
        "What the status of each policy says is not as it should be, and the reason; the reasons "
        "are explained in docs/regimes.md.",
        [Query(f"{asked} < 1")],
        [
            *_NAMES,
            Column("condition", "Condition"),
            Column("reason", "Reason"),
            Column("Value", "Status", values=values),
        ],
        width=14,
        none="every condition is True",
        runbook="evictune-policy-not-active",
    )


def _decided() -> panels.Panel:
    last = own("evictune_last_decision_timestamp_seconds", by=(*KEY, "reason"))
    return panels.listing(
        "Latest decisions",
        "When each kind of transition last happened to each policy, since the operator started. "
        "`evictune history` tells them in full.",
        [Query(f"topk(20, {last}) * 1000")],
        [*_NAMES, Column("reason", "Decision"), Column("Value", "When", "dateTimeFromNow")],
        sort="When",
        width=10,
        none="none since the operator started",
    )
