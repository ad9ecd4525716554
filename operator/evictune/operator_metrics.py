"""What the operator tells Prometheus about itself.

Label values are policies and members of closed lists; the series of a deleted policy go with it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric

POLICY = ("namespace", "policy")
_STATUS = {"True": 1, "False": 0, "Unknown": -1}
_TICK_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_LAG_BUCKETS = (0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60)


class OperatorMetrics:
    """All series, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._info: dict[tuple[Gauge, tuple[str, ...]], str] = {}
        self._engines: dict[tuple[str, str], frozenset[tuple[str, str]]] = {}
        self._describe_policies()
        self._describe_conditions()
        self._describe_ticks()
        self._describe_following()

    def _describe_policies(self) -> None:
        self.decisions = Counter(
            "evictune_decisions",
            "Transitions by reason.",
            (*POLICY, "reason"),
            registry=self.registry,
        )
        self.last_decision = Gauge(
            "evictune_last_decision_timestamp_seconds",
            "When the last transition of this reason was, since the operator started.",
            (*POLICY, "reason"),
            registry=self.registry,
        )
        self.engine = Gauge(
            "evictune_policy_engine_info",
            "1 for each engine rank of the policy's target, by pod: joins engines to policies.",
            (*POLICY, "pod", "engine"),
            registry=self.registry,
        )
        self.regime = Gauge(
            "evictune_regime_info",
            "1 for the regime now; absent while the target cannot be looked at.",
            (*POLICY, "regime"),
            registry=self.registry,
        )
        self.slo_met = Gauge(
            "evictune_slo_met",
            "1 every objective is met, 0 one is violated; absent while unknown.",
            POLICY,
            registry=self.registry,
        )
        self.reading = Gauge(
            "evictune_reading",
            "Readings as decided upon: seconds, shares, counts, per second; absent while unknown.",
            (*POLICY, "reading"),
            registry=self.registry,
        )
        self.applied = Gauge(
            "evictune_applied_tokens",
            "Values of T-LRU kept; absent under stock LRU.",
            (*POLICY, "knob"),
            registry=self.registry,
        )

    def _describe_conditions(self) -> None:
        self.condition = Gauge(
            "evictune_condition_status",
            "A condition of the policy's status: 1 True, 0 False, -1 Unknown.",
            (*POLICY, "condition", "reason"),
            registry=self.registry,
        )
        self.quarantined = Gauge(
            "evictune_quarantined_values",
            "Values that were tried and are not tried again for now.",
            POLICY,
            registry=self.registry,
        )
        self.mode = Gauge(
            "evictune_mode_info",
            "1 for the mode in effect: spec.mode, or less where fleet.mode allows less.",
            (*POLICY, "mode"),
            registry=self.registry,
        )
        self.ttft_threshold = Gauge(
            "evictune_ttft_threshold_seconds",
            "The policy's slo.ttft.threshold.",
            POLICY,
            registry=self.registry,
        )

    def _describe_ticks(self) -> None:
        self.tick_seconds = Histogram(
            "evictune_tick_seconds",
            "Duration of one tick: read, observe, decide, act.",
            POLICY,
            buckets=_TICK_BUCKETS,
            registry=self.registry,
        )
        self.tick_lag = Histogram(
            "evictune_tick_lag_seconds",
            "How much later than scheduled a tick began.",
            POLICY,
            buckets=_LAG_BUCKETS,
            registry=self.registry,
        )
        self.last_tick = Gauge(
            "evictune_last_tick_timestamp_seconds",
            "When the last tick that succeeded ended; before the first, when the policy was found.",
            POLICY,
            registry=self.registry,
        )
        self.interval = Gauge(
            "evictune_tick_interval_seconds",
            "From one tick to the next, as planned.",
            POLICY,
            registry=self.registry,
        )
        self.tick_failures = Counter(
            "evictune_tick_failures",
            "Ticks that ended in an error.",
            POLICY,
            registry=self.registry,
        )

    def _describe_following(self) -> None:
        self.leading = Gauge(
            "evictune_leading",
            "1 while this operator holds the Lease and may write, else 0.",
            registry=self.registry,
        )
        self.lost_events = Counter(
            "evictune_lost_watch_events",
            "Policies that a re-list found and the watch had not told of.",
            registry=self.registry,
        )
        self.policies = Gauge(
            "evictune_policies", "Policies being followed.", registry=self.registry
        )
        self.last_list = Gauge(
            "evictune_last_list_timestamp_seconds",
            "When the policies were last listed with success.",
            registry=self.registry,
        )
        self.last_event = Gauge(
            "evictune_last_watch_event_timestamp_seconds",
            "When the watch last delivered an event.",
            registry=self.registry,
        )

    def families(self) -> Iterator[tuple[Metric, tuple[str, ...]]]:
        """Every family of series, with the names of its labels."""
        for collector in vars(self).values():
            if isinstance(collector, Counter | Gauge | Histogram):
                for family in collector.describe():
                    yield family, tuple(collector._labelnames)

    def show_reading(self, key: tuple[str, str], name: str, value: float | None) -> None:
        """Set a reading's series, or remove it while the reading has no value."""
        _set_or_remove(self.reading, (*key, name), value)

    def show_slo(self, key: tuple[str, str], met: bool | None) -> None:
        """Set whether the objectives are met, or remove the series while unknown."""
        _set_or_remove(self.slo_met, key, None if met is None else float(met))

    def show_applied(self, key: tuple[str, str], values: Mapping[str, int | None]) -> None:
        """Set the values kept."""
        for knob, value in values.items():
            _set_or_remove(self.applied, (*key, knob), value)

    def show_regime(self, key: tuple[str, str], regime: str) -> None:
        """Set the regime now; the one before goes."""
        self._show_info(self.regime, key, regime)

    def show_engines(self, key: tuple[str, str], engines: Collection[tuple[str, str]]) -> None:
        """Set the engine ranks seen, each a pod's name and a rank; those gone go."""
        before = self._engines.pop(key, frozenset())
        for gone in before.difference(engines):
            self.engine.remove(*key, *gone)
        for new in set(engines).difference(before):
            self.engine.labels(*key, *new).set(1)
        if engines:
            self._engines[key] = frozenset(engines)

    def show_mode(self, key: tuple[str, str], mode: str) -> None:
        """Set the mode in effect; the one before goes."""
        self._show_info(self.mode, key, mode)

    def show_conditions(
        self, key: tuple[str, str], conditions: Iterable[Mapping[str, Any]]
    ) -> None:
        """Set the conditions of a status; a condition's series with another reason goes."""
        for each in conditions:
            place = (*key, each["type"])
            self._show_info(self.condition, place, each["reason"], _STATUS[each["status"]])

    def lose_sight(self, key: tuple[str, str]) -> None:
        """Remove what is known by looking at the target alone: it could not be looked at."""
        labels = dict(zip(POLICY, key, strict=True))
        self.show_engines(key, ())
        for family in (self.regime, self.slo_met, self.reading):
            family.remove_by_labels(labels)

    def forget(self, key: tuple[str, str]) -> None:
        """Remove every series of a policy."""
        self._info = {place: last for place, last in self._info.items() if place[1][:2] != key}
        labels = dict(zip(POLICY, key, strict=True))
        self._engines.pop(key, None)
        for family in self._per_policy():
            family.remove_by_labels(labels)

    def _show_info(
        self, gauge: Gauge, labels: tuple[str, ...], last: str, value: float = 1
    ) -> None:
        """Set the series with these labels and this last one; that with another last one goes.

        Remembered, not searched for: a search goes through the series of all policies.
        """
        before = self._info.get((gauge, labels), last)
        if before != last:
            gauge.remove(*labels, before)
        self._info[gauge, labels] = last
        gauge.labels(*labels, last).set(value)

    def _per_policy(self) -> Iterable[Counter | Gauge | Histogram]:
        return (
            self.decisions,
            self.last_decision,
            self.engine,
            self.regime,
            self.slo_met,
            self.reading,
            self.applied,
            self.condition,
            self.quarantined,
            self.mode,
            self.ttft_threshold,
            self.tick_seconds,
            self.tick_lag,
            self.last_tick,
            self.interval,
            self.tick_failures,
        )


def _set_or_remove(gauge: Gauge, labels: tuple[str, ...], value: float | None) -> None:
    if value is None:
        gauge.remove(*labels)
    else:
        gauge.labels(*labels).set(value)
