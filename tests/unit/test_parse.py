"""A resource becomes typed objects, or an error that names the field, the value and the remedy."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from evictune.api.disruption import DisruptionPolicy, DisruptionWindow, FractionRange
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


FRACTION = "spec.knobs.gpuMemoryUtilization"
DISRUPTION = "spec.behavior.disruption"
WINDOW = {"cron": "0 2 * * 1-5", "duration": "3h", "timeZone": "Europe/Berlin"}


def _fractions(**fields: Any) -> dict[str, Any]:
    bounds = {"min": "0.80", "max": "0.94", **fields}
    return {"knobs": {"gpuMemoryUtilization": bounds}}


def _disruption(**fields: Any) -> dict[str, Any]:
    return {"behavior": {"disruption": fields}}


def _window(**fields: Any) -> dict[str, Any]:
    return _disruption(windows=[WINDOW | fields])


def test_the_fraction_and_what_it_may_cost_arrive() -> None:
    spec = make_policy(
        **_fractions(),
        behavior={"disruption": {"policy": "Allow", "minReady": 1, "windows": [WINDOW]}},
    ).spec
    bounds, disruption = spec.knobs.gpu_memory_utilization, spec.behavior.disruption
    assert bounds == FractionRange(Decimal("0.80"), Decimal("0.94"), Decimal("0.02"))
    assert disruption.windows == (DisruptionWindow("0 2 * * 1-5", 10800.0, "Europe/Berlin"),)
    assert (disruption.max_per_day, disruption.drain_timeout) == (2, 120.0)
    assert disruption.least_ready == 1
    assert make_policy(**_disruption(policy="Allow")).spec.behavior.disruption.least_ready == 0
    assert make_policy().spec.behavior.disruption.policy is DisruptionPolicy.NEVER


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
    (f"{FRACTION}.max", _fractions(max="1.0"), "1.0", "use 0.05 to 0.95"),
    (f"{FRACTION}.min", _fractions(min="0.01"), "0.01", "use 0.05 to 0.95"),
    (f"{FRACTION}.min", _fractions(min="0.95"), "0.95", "min must not be above max"),
    (f"{FRACTION}.max", _fractions(max=0.9), "0.9", "as a string"),
    (f"{FRACTION}.max", _fractions(max=None), "None", "required"),
    (f"{FRACTION}.step", _fractions(step="0"), "0", "use 0.001 to 0.2"),
    (f"{DISRUPTION}.policy", _disruption(policy="Yes"), "Yes", "Never, WhenRedundant, Allow"),
    (
        f"{DISRUPTION}.minReady",
        _disruption(policy="WhenRedundant", minReady=0),
        "0",
        "at least 1 with policy WhenRedundant",
    ),
    (f"{DISRUPTION}.maxPerDay", _disruption(maxPerDay=0), "0", "use 1 to 24"),
    (f"{DISRUPTION}.drainTimeout", _disruption(drainTimeout="2h"), "2h", "use 0s to 1h"),
    (f"{DISRUPTION}.windows", _disruption(windows={}), "{}", "write a list"),
    (f"{DISRUPTION}.windows", _disruption(windows=[WINDOW] * 17), "17 items", "at most 16"),
    (f"{DISRUPTION}.windows[1]", _disruption(windows=[WINDOW, 3]), "3", "object"),
    (f"{DISRUPTION}.windows[0].cron", _window(cron="0 2 * *"), "0 2 * *", "must match"),
    (f"{DISRUPTION}.windows[0].cron", _window(cron="0 99 * * *"), "0 99 * * *", "five fields"),
    (f"{DISRUPTION}.windows[0].cron", _window(cron="0 0 30 2 *"), "0 0 30 2 *", "five fields"),
    (f"{DISRUPTION}.windows[0].duration", _window(duration="5s"), "5s", "use 1m to 168h"),
    (f"{DISRUPTION}.windows[0].timeZone", _window(timeZone="Mars/Base"), "Mars/Base", "IANA"),
    (f"{DISRUPTION}.windows[0].timeZone", _window(timeZone="Europe"), "Europe", "IANA"),
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
