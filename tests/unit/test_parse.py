"""A resource becomes typed objects, or an error that names the field, the value and the remedy."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from evictune.api.parse import parse_policy
from evictune.api.policy import Behavior, Mode
from evictune.api.quantity import FieldError

from tests.support.situations import make_body, make_policy


def test_every_field_arrives() -> None:
    policy = make_policy(
        slo={"maxPreemptionsPerSecond": "0.2", "maxKVCacheUsage": "0.92"},
        containerName="vllm",
        metrics={"source": "engines"},
        suspend=True,
        behavior={"tolerance": "0.05", "knobTTL": "1h30m"},
    )
    spec = policy.spec
    assert policy.key == "serve/chat"
    assert (spec.slo.ttft.quantile, spec.slo.ttft.threshold) == (Decimal("0.99"), 0.3)
    assert (spec.slo.ttft.window, spec.slo.ttft.min_requests) == (60.0, 100)
    assert spec.slo.max_preemptions_per_second == Decimal("0.2")
    assert spec.slo.max_kv_cache_usage == Decimal("0.92")
    assert spec.knobs.tlru is not None
    assert (spec.knobs.tlru.xi_tokens.minimum, spec.knobs.tlru.xi_tokens.maximum) == (32, 4096)
    assert (spec.container_name, spec.source, spec.suspend) == ("vllm", "engines", True)
    assert (spec.behavior.tolerance, spec.behavior.knob_ttl) == (Decimal("0.05"), 5400.0)
    assert spec.mode is Mode.AUTO


def test_what_is_left_out_has_its_default() -> None:
    spec = make_policy(
        mode=None, behavior=None, knobs=None, slo={"ttft": {"window": None, "minRequests": None}}
    ).spec
    assert spec.mode is Mode.RECOMMEND
    assert spec.behavior == Behavior()
    assert spec.behavior.settle == 300.0
    assert (spec.knobs.tlru, spec.source, spec.suspend) == (None, "default", False)
    assert (spec.slo.ttft.window, spec.slo.ttft.min_requests) == (600.0, 300)


REFUSED: list[tuple[str, dict[str, Any], str, str]] = [
    ("spec.slo.ttft.quantile", {"slo": {"ttft": {"quantile": "1.5"}}}, "1.5", "strictly between"),
    ("spec.slo.ttft.quantile", {"slo": {"ttft": {"quantile": "0"}}}, "0", "strictly between"),
    ("spec.slo.ttft.quantile", {"slo": {"ttft": {"quantile": 0.99}}}, "0.99", "as a string"),
    ("spec.slo.ttft.threshold", {"slo": {"ttft": {"threshold": "fast"}}}, "fast", "800ms"),
    ("spec.slo.ttft.threshold", {"slo": {"ttft": {"threshold": "0s"}}}, "0s", "1ms to 1h"),
    ("spec.slo.ttft.threshold", {"slo": {"ttft": {"threshold": None}}}, "None", "required"),
    ("spec.slo.ttft.minRequests", {"slo": {"ttft": {"minRequests": True}}}, "True", "whole number"),
    ("spec.slo.ttft.minRequests", {"slo": {"ttft": {"minRequests": 0}}}, "0", "use 1 to"),
    ("spec.slo.maxKVCacheUsage", {"slo": {"maxKVCacheUsage": "92"}}, "92", "use 0 to 1"),
    ("spec.targetRef.kind", {"targetRef": {"kind": "CronJob"}}, "CronJob", "Deployment"),
    ("spec.targetRef.name", {"targetRef": {"name": "Not A Name"}}, "Not A Name", "match"),
    ("spec.targetRef", {"targetRef": "chat"}, "chat", "object"),
    ("spec.mode", {"mode": "Yolo"}, "Yolo", "Observe, Recommend, Auto"),
    ("spec.suspend", {"suspend": "yes"}, "yes", "true or false"),
    ("spec.behavior.interval", {"behavior": {"interval": "500ms"}}, "500ms", "1s to 1h"),
    ("spec.behavior.knobTTL", {"behavior": {"knobTTL": "20s"}}, "20s", "three times interval"),
    (
        "spec.knobs.tlru.xiTokens.min",
        {"knobs": {"tlru": {"xiTokens": {"min": 9, "max": 4}}}},
        "9",
        "min must not be above max",
    ),
    (
        "spec.knobs.tlru.xiTokens.min",
        {"knobs": {"tlru": {"xiTokens": {"min": 0}}}},
        "0",
        "xi 0 is stock LRU",
    ),
]


@pytest.mark.parametrize(("field", "spec", "value", "remedy"), REFUSED)
def test_what_cannot_be_used_is_named(
    field: str, spec: dict[str, Any], value: str, remedy: str
) -> None:
    with pytest.raises(FieldError) as caught:
        make_policy(**spec)
    assert caught.value.field == field
    assert value in str(caught.value)
    assert remedy in caught.value.remedy


def test_a_body_without_spec_is_refused_by_name() -> None:
    with pytest.raises(FieldError, match="spec: None cannot be used"):
        parse_policy({"metadata": {"name": "x"}})


def test_a_field_of_a_newer_definition_is_left_alone() -> None:
    body = make_body()
    body["spec"]["slo"] = {**body["spec"]["slo"], "someday": "new"}
    assert parse_policy(body).spec.slo.ttft.threshold == 0.3
