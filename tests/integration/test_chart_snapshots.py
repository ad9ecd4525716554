"""The rendered manifests against those that were looked at and kept, and what is left out."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.chart_snapshots import DATA, PROMETHEUS_OPERATOR, names, snapshot, template
from tests.support.helm import CHART, each_helm

__all__ = ["each_helm"]
pytestmark = pytest.mark.usefixtures("each_helm")

Object = dict[str, Any]
# The chart as it was before this version.
OLD = DATA / "evictune-0.1.0.tgz"
DASHBOARD = """\
{"uid": "fleet", "title": "{{ not a template }}", "link": "https://evictune.io/docs/runbooks/lost"}
"""
RULES = """\
groups:
  - name: evictune
    rules:
      - alert: Lost
        expr: absent(evictune_leading)
        annotations:
          summary: "{{ $labels.pod }} is lost"
          runbook_url: https://evictune.io/docs/runbooks/lost
"""


@pytest.fixture
def chart(tmp_path: Path) -> Path:
    """The chart with one dashboard and one file of rules."""
    copy = tmp_path / "evictune"
    shutil.copytree(CHART, copy)
    for name, text in (("dashboards/Fleet.json", DASHBOARD), ("rules/alerts.yaml", RULES)):
        shutil.rmtree((copy / "files" / name).parent, ignore_errors=True)
        (copy / "files" / name).parent.mkdir()
        (copy / "files" / name).write_text(text)
    return copy


def by_kind(manifests: str) -> dict[str, list[Object]]:
    """The objects by kind."""
    found: dict[str, list[Object]] = {}
    for body in yaml.safe_load_all(manifests):
        found.setdefault(body["kind"], []).append(body)
    return found


def notes(chart: Path, values: Object, kinds: tuple[str, ...] = ()) -> str:
    """What Helm would say after an install; `helm template` shows it only within an object."""
    text = (chart / "templates/NOTES.txt").read_text()
    body = 'kind: Notes\nsaid: {{ include "notes" . | quote }}\n'
    (chart / "templates/notes.yaml").write_text(
        f'{{{{- define "notes" }}}}{text}{{{{- end }}}}\n{body}'
    )
    file = chart.parent / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    (found,) = by_kind(template(file, chart, kinds))["Notes"]
    return " ".join(str(found["said"]).split())


@pytest.mark.parametrize("name", names())
def test_the_manifests_are_those_that_were_kept(name: str) -> None:
    kept = (DATA / f"{name}.yaml").read_text("utf-8")
    assert snapshot(name) == kept, "look at the difference; `make snapshots` keeps the new ones"


def test_dashboards_and_rules_come_through_as_they_are(chart: Path) -> None:
    objects = by_kind(template(DATA / "everything.values.yaml", chart))
    (dashboard,) = [
        each for each in objects["ConfigMap"] if "dashboard" in each["metadata"]["name"]
    ]
    assert dashboard["metadata"]["name"] == "tuner-dashboard-fleet"
    assert dashboard["metadata"]["namespace"] == "grafana"
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert dashboard["metadata"]["annotations"] == {"grafana_folder": "evictune"}
    assert json.loads(dashboard["data"]["Fleet.json"]) == json.loads(DASHBOARD)
    (rule,) = objects["PrometheusRule"]
    assert rule["spec"] == yaml.safe_load(RULES)
    assert rule["metadata"]["labels"]["release"] == "kube-prometheus-stack"


def test_the_alerts_pages_may_be_kept_elsewhere(chart: Path, tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    pages = "https://wiki.example/a b/"
    values = {"rules": {"enabled": True, "runbooks": pages}, "dashboards": {"enabled": True}}
    file.write_text(yaml.safe_dump(values))
    objects = by_kind(template(file, chart))
    (dashboard,) = [each for each in objects["ConfigMap"] if "Fleet.json" in each["data"]]
    assert json.loads(dashboard["data"]["Fleet.json"])["link"] == f"{pages}lost"
    (rule,) = objects["PrometheusRule"]
    assert rule["spec"] == yaml.safe_load(
        RULES.replace("https://evictune.io/docs/runbooks/", pages)
    )


def test_kinds_that_the_cluster_does_not_know_are_left_out(chart: Path) -> None:
    objects = by_kind(template(DATA / "everything.values.yaml", chart, ()))
    assert not {"PodMonitor", "PrometheusRule"} & set(objects)


def test_an_upgrade_changes_nothing_that_cannot_be_changed() -> None:
    before, after = (_fixed(template(DATA / "default.values.yaml", each)) for each in (OLD, CHART))
    assert before.items() <= after.items()
    assert len(before) > 5


def _fixed(manifests: str) -> dict[tuple[str, str, str], Object]:
    """By kind, namespace and name: the fields that Kubernetes lets nobody change."""
    found = {}
    for body in yaml.safe_load_all(manifests):
        metadata = body["metadata"]
        kind = body["kind"]
        fixed = {"roleRef": body.get("roleRef")}
        if kind == "Deployment":
            fixed["selector"] = body["spec"]["selector"]
        found[kind, metadata.get("namespace", ""), metadata["name"]] = fixed
    return found


def test_nothing_is_added_unasked(chart: Path) -> None:
    objects = by_kind(template(DATA / "default.values.yaml", chart))
    added = {"PodMonitor", "PrometheusRule", "NetworkPolicy", "PodDisruptionBudget"}
    assert not added & set(objects)
    assert len(objects["ConfigMap"]) == 1


def test_notes_say_what_was_left_out_and_what_to_do(chart: Path) -> None:
    wanted = {name: {"enabled": True} for name in ("podMonitors", "rules", "dashboards")}
    said = notes(chart, wanted)
    assert "Left out: PodMonitors" in said
    assert "Left out: PrometheusRules" in said
    assert "Left out: dashboards" not in said
    assert "Install the Prometheus Operator" in said
    assert "Left out" not in notes(chart, wanted, PROMETHEUS_OPERATOR)
    shutil.rmtree(chart / "files/dashboards")
    shutil.rmtree(chart / "files/rules")
    said = notes(chart, wanted, PROMETHEUS_OPERATOR)
    assert "Left out: PrometheusRules, since this version" in said
    assert "Left out: dashboards, since this version" in said


def test_notes_say_that_the_fleet_is_held_back(chart: Path) -> None:
    assert "fleet.mode" not in notes(chart, {})
    assert "fleet.mode is Suspend: no policy may" in notes(chart, {"fleet": {"mode": "Suspend"}})


def test_notes_say_what_the_cluster_would_allow(chart: Path) -> None:
    assert "--set podMonitors.enabled=true" in notes(chart, {}, PROMETHEUS_OPERATOR)
    said = notes(chart, {})
    assert "podMonitors" not in said
    assert "Left out" not in said
