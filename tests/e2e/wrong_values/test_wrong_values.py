"""Wrong values: of the chart, refused by name; of a policy, by field; of xi, taken back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.installation import NAME, NAMESPACE, Installation, wait_for
from tests.support.serving import Serving, policy

CROSSED = {"xiTokens": {"min": 9, "max": 3}, "qHatTokens": {"min": 60, "max": 60}}


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ("fleet.mode=Sleepy", "fleet"),
        ("imagee.tag=1", "imagee"),
        ("sources.default.prometheus.timeout=5s", "url"),
        ("watchNamespaces=serving", "watchNamespaces"),
    ],
)
def test_a_wrong_value_of_the_chart_changes_nothing(
    installation: Installation, setting: str, named: str
) -> None:
    shell, before = installation.shell, installation.pod()["metadata"]["uid"]
    upgrade = f"helm upgrade {NAME} charts/evictune -n {NAMESPACE} --reuse-values --set {setting}"
    assert named in shell.refused(upgrade)
    history = json.loads(shell.run(f"helm history {NAME} -n {NAMESPACE} -o json"))
    assert [each["status"] for each in history][-1] == "deployed"
    assert installation.pod()["metadata"]["uid"] == before


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"slo": {"ttft": {"quantile": "0.95", "threshold": "fast"}}}, "spec.slo.ttft.threshold"),
        ({"mode": "Automatic"}, "spec.mode"),
        ({"knobs": {"tlru": CROSSED}}, "spec.knobs.tlru.xiTokens"),
        ({"behavior": {"knobTTL": "2s"}}, "knobTTL"),
    ],
)
def test_a_wrong_field_of_a_policy_is_refused_by_name(
    installation: Installation, spec: dict[str, Any], field: str
) -> None:
    apply = "kubectl apply --dry-run=server -f -"
    assert field in installation.shell.refused(apply, json.dumps(policy(**spec)))


def test_a_xi_that_makes_it_worse_is_taken_back(serving: Serving) -> None:
    serving.becomes("worse")
    serving.apply(policy())
    wait_for("taken back", lambda: "Reverted" in serving.reasons())
    status = serving.status()
    first, second, *_ = (each for each in status["decisions"] if each["reason"] == "Intended")
    tried = first["to"]
    assert second["to"] == {}  # stock LRU
    assert "made it worse" in second["message"]
    left = next(each for each in status["quarantine"] if each["values"] == tried)
    assert left["reason"] == "Reverted"
    assert "times" not in left  # left once
    assert "requests/s per engine" in left["fingerprint"]
    # Under stock LRU again, or at another value by now: never at the same.
    (engine,) = serving.engines()
    shown = engine.in_force()
    assert shown is not None
    assert shown.xi_tokens != tried["xiTokens"]
    assert "Reverted" in serving.events()
