"""Policies, readings and memories to hand to `decide`, each said by what is special about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evictune.api.decision import Applied, Baseline, Memory, Pending, Phase
from evictune.api.knobs import STOCK_LRU, KnobDocument, KnobValues
from evictune.api.observation import (
    EngineObservation,
    Interval,
    Observation,
    TargetState,
    Value,
)
from evictune.api.parse import parse_policy
from evictune.api.policy import EvictionPolicy
from evictune.api.reasons import Reason

NOW = 1_800_000_000.0
THRESHOLD = 0.3
XI_512 = KnobValues(512, 60)
XI_1024 = KnobValues(1024, 60)

BODY: dict[str, Any] = {
    "apiVersion": "evictune.io/v1alpha1",
    "kind": "EvictionPolicy",
    "metadata": {"name": "chat", "namespace": "serve", "uid": "0a1b2c3d-4e5f", "generation": 3},
    "spec": {
        "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "chat-8b"},
        "mode": "Auto",
        "slo": {
            "ttft": {
                "quantile": "0.99",
                "threshold": "300ms",
                "window": "60s",
                "minRequests": 100,
            }
        },
        "knobs": {
            "tlru": {"xiTokens": {"min": 32, "max": 4096}, "qHatTokens": {"min": 60, "max": 200}}
        },
        "behavior": {"interval": "10s", "settle": "30s", "cooldown": "2m", "knobTTL": "10m"},
    },
}


def make_body(**spec: Any) -> dict[str, Any]:
    """A resource as the API server sends it; nested mappings are merged, None removes a field."""
    return {**BODY, "spec": _merge(BODY["spec"], spec)}


def _merge(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(old)
    for name, value in new.items():
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, Mapping) and isinstance(merged.get(name), Mapping):
            merged[name] = _merge(merged[name], value)
        else:
            merged[name] = value
    return merged


def make_policy(**spec: Any) -> EvictionPolicy:
    """A policy in mode Auto with an SLO of p99 <= 300 ms."""
    return parse_policy(make_body(**spec))


def ttft(estimate: float, *, requests: float = 400.0, above: float | None = None) -> Interval:
    """A quantile known to 2 %; `above`: the share of requests above the threshold."""
    if above is None:
        above = 0.05 if estimate > THRESHOLD else 0.001
    return Interval(estimate * 0.99, estimate * 1.01, estimate, requests, above, above)


def make_engine(
    values: KnobValues | None = STOCK_LRU, revision: int | None = 0, **fields: Any
) -> EngineObservation:
    """An engine that shows these values in force; None: it does not show the plugin."""
    defaults: dict[str, Any] = {
        "pod": "chat-8b-0",
        "engine": "0",
        "eligible": None if values is None else True,
        "ineligible_reason": "",
        "block_tokens": 32,
        "capacity_tokens": 6400,
        "kv_usage": Value(0.2),
    }
    return EngineObservation(in_force=values, revision=revision, **{**defaults, **fields})


def observe(estimate: float = 0.6, **fields: Any) -> Observation:
    """By default: p99 600 ms, cached blocks evicted in stock order, one ready engine on LRU."""
    defaults: dict[str, Any] = {
        "target": TargetState(True, 1, 1),
        "engines": (make_engine(),),
        "ttft": ttft(estimate),
        "queue_time": Value(0.01),
        "kv_usage": Value(0.2),
        "preemptions": Value(0.0),
        "hit_ratio": Value(0.2),
        "running": Value(1.0),
        "waiting": Value(0.0),
        "prefill_rate": Value(2800.0),
        "uncached_tokens": Value(1500.0),
        "evicted_protected": Value(0.0),
        "evicted_tel_safe": Value(0.0),
        "evicted_lru": Value(500.0),
        "prompt_tokens_per_request": Value(420.0),
    }
    return Observation(**{**defaults, **fields})


def following(
    values: KnobValues, revision: int = 1, *, expires: float = NOW + 600, **fields: Any
) -> Observation:
    """What is seen where these values are in force: the document and every engine say so."""
    region = {} if values.stock else {"evicted_lru": Value(0.0), "evicted_tel_safe": Value(500.0)}
    defaults: dict[str, Any] = {
        "engines": (make_engine(values, revision),),
        "document": KnobDocument(revision, values, expires),
        **region,
    }
    return observe(**{**defaults, **fields})


def applied(values: KnobValues, revision: int = 1, **fields: Any) -> Memory:
    """Memory of values that were kept long ago."""
    defaults: dict[str, Any] = {"last_change_time": NOW - 3600}
    kept = Applied(revision, f"0a1b2c3d-{revision}-1", values)
    return Memory(applied=kept, **{**defaults, **fields})


BASELINE = Baseline(0.594, 0.606, 0.6, 0.05, 1500.0, 400.0)


def make_pending(phase: Phase = Phase.WRITING, **fields: Any) -> Pending:
    """A change from stock LRU to xi 512, decided now as revision 2."""
    defaults: dict[str, Any] = {
        "decision_id": "0a1b2c3d-2-1800000000",
        "revision": 2,
        "change_from": STOCK_LRU,
        "change_to": XI_512,
        "baseline": BASELINE,
        "reason": Reason.REUSE_LOST,
        "start_time": NOW,
        "acknowledged_time": NOW if phase is Phase.SETTLING else None,
    }
    return Pending(phase=phase, **{**defaults, **fields})


def reasons(records: Any) -> list[Reason]:
    """The reasons of records, or of holds."""
    return [each[0] if isinstance(each, tuple) else each.reason for each in records]
