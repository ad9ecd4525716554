"""The operator: does it tick, does it follow, does it decide."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard

from dashboards import panels
from dashboards.panels import BLUE, GREEN, GREY, ORANGE, RED, Column, Query
from dashboards.query import KEY, NAMESPACES, RATE, own

UID = "evictune-operator"
_AGE = f"time() - {own('evictune_last_tick_timestamp_seconds')}"
_STALLED = "evictune-operator-stalled"


def dashboard() -> Dashboard:
    """The dashboard."""
    made = panels.dashboard(
        UID,
        "evictune / Operator",
        "The operator itself: one leads, every policy is looked at on time, and the API server's "
        "watch is alive.",
    ).with_variable(
        panels.variable(
            "namespace",
            "Namespace",
            "evictune_last_tick_timestamp_seconds",
            several=True,
            text="Namespaces of the policies",
        )
    )
    return panels.fill(
        made,
        {
            "Now": _figures(),
            "Looks at policies": (_ticks(), _seconds(), _lag(), _late()),
            "Leading and following": (_leading(), _following(), _decisions(), _lost()),
        },
    )


def _figures() -> tuple[panels.Panel, ...]:
    return (
        panels.figure(
            "Leaders",
            "Operators that hold the Lease and act: one.",
            Query("sum(evictune_leading)"),
            steps=((0, RED), (1, GREEN), (2, RED)),
            none="no operator is scraped",
            runbook=_STALLED,
        ),
        panels.figure(
            "Operators",
            "Operators that are scraped: the leader, and those that wait for its Lease.",
            Query("count(evictune_leading)"),
        ),
        panels.figure(
            "Policies followed",
            "EvictionPolicies that the leader follows, of all namespaces.",
            Query("max(evictune_policies)"),
        ),
        panels.figure(
            "Oldest look at a policy",
            "How long ago the policy that waits longest was last looked at with success. It "
            "should be about its behavior.interval.",
            Query(f"max({_AGE})"),
            unit="s",
            steps=((0, GREEN), (120, ORANGE), (600, RED)),
            runbook=_STALLED,
        ),
        panels.figure(
            "Last list of policies",
            "How long ago the operator last listed all policies with success.",
            Query("time() - max(evictune_last_list_timestamp_seconds)"),
            unit="s",
            runbook=_STALLED,
        ),
        panels.figure(
            "Last word of the watch",
            "How long ago the API server's watch last delivered an event. Quiet is no fault "
            "while nobody changes a policy.",
            Query("time() - max(evictune_last_watch_event_timestamp_seconds)"),
            unit="s",
            runbook=_STALLED,
        ),
    )


def _rate(series: str, more: str = "") -> str:
    return f"sum(rate({series}{{{NAMESPACES}{more}}}[{RATE}]))"


def _ticks() -> panels.Panel:
    return panels.lines(
        "Ticks",
        "Looks at policies: read, observe, decide, act. A failed one is tried again; its cause "
        "is in the operator's log.",
        Query(_rate("evictune_tick_seconds_count"), "all"),
        Query(_rate("evictune_tick_failures_total"), "failed"),
        unit="suffix: /s",
        colours={"all": BLUE, "failed": RED},
        runbook=_STALLED,
    )


def _of_buckets(series: str, share: float) -> Query:
    buckets = f"sum by (le) (rate({series}_bucket{{{NAMESPACES}}}[{RATE}]))"
    return Query(f"histogram_quantile({share:g}, {buckets})", f"p{share * 100:g}")


def _of_ticks(title: str, description: str, series: str) -> panels.Panel:
    """The median and the slowest of a histogram that every tick adds to."""
    queries = (_of_buckets(series, share) for share in (0.5, 0.99))
    return panels.lines(title, description, *queries, unit="s", runbook=_STALLED)


def _seconds() -> panels.Panel:
    return _of_ticks(
        "Duration of a tick",
        "How long one look at a policy takes. Long ones wait for the metrics source or the API "
        "server.",
        "evictune_tick_seconds",
    )


def _lag() -> panels.Panel:
    return _of_ticks(
        "Ticks begun later than planned",
        "By how much ticks are late. It grows when there are more policies than the operator can "
        "look at in their intervals.",
        "evictune_tick_lag_seconds",
    )


def _late() -> panels.Panel:
    return panels.listing(
        "Policies by their last look",
        "How long ago each policy was last looked at with success, against its interval; longest "
        "first.",
        [Query(_AGE), Query(own("evictune_tick_interval_seconds"))],
        [
            Column("namespace", "Namespace"),
            Column("policy", "Policy"),
            Column("Value #A", "Last look", "s"),
            Column("Value #B", "Interval", "s"),
        ],
        sort="Last look",
        width=12,
        none="no policy is followed",
        runbook=_STALLED,
    )


def _leading() -> panels.Panel:
    return panels.states(
        "Who leads",
        "One line an operator; exactly one leads at any time. The others wait for its Lease.",
        Query("max by (pod, instance) (evictune_leading)", "{{pod}} {{instance}}"),
        ((1, "leads", GREEN), (0, "waits", GREY)),
        width=12,
        height=8,
        runbook=_STALLED,
    )


def _following() -> panels.Panel:
    return panels.lines(
        "Policies followed over time",
        "EvictionPolicies that the leader follows, of all namespaces.",
        Query("max(evictune_policies)", "policies"),
        unit="none",
        colours={"policies": BLUE},
        steps=True,
    )


def _decisions() -> panels.Panel:
    counted = f"max by ({', '.join((*KEY, 'reason'))}) (evictune_decisions_total{{{NAMESPACES}}})"
    return panels.lines(
        "Decisions since the start",
        "Transitions of all policies by reason, since the operator started; the reasons are "
        "explained in docs/regimes.md.",
        Query(f"sum by (reason) ({counted})", "{{reason}}"),
        unit="none",
        steps=True,
        runbook="evictune-quarantine-growing",
    )


def _lost() -> panels.Panel:
    return panels.lines(
        "Changes that the watch did not tell",
        "Policies that a list found changed and the watch had not told of. Many of them: "
        "something between the operator and the API server drops long connections.",
        Query(f"sum(increase(evictune_lost_watch_events_total[{RATE}]))", "lost"),
        unit="none",
        colours={"lost": ORANGE},
        runbook=_STALLED,
    )
