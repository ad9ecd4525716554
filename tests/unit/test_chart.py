"""What can be said of the chart without Helm."""

from __future__ import annotations

import json
import re
import textwrap
import tomllib
from pathlib import Path
from typing import Any

import yaml
from evictune.api.parse import parse_policy
from evictune.api.policy import TargetRef
from evictune.api.source_definition import DIRECT_OPTIONS, PROMETHEUS_OPTIONS

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts/evictune"


def test_the_chart_has_the_version_of_the_operator() -> None:
    project = tomllib.loads((ROOT / "operator/pyproject.toml").read_text())["project"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == project["version"]


def test_every_value_is_in_the_schema_and_every_entry_of_the_schema_is_a_value() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    # `global` belongs to parent charts.
    assert set(schema["properties"]) - {"global"} == set(values)
    for name, value in values.items():
        entry = schema["properties"][name]
        if entry.get("additionalProperties") is False:
            assert set(entry["properties"]) == set(value), name


def test_the_schema_knows_every_option_of_a_source() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    kinds = schema["definitions"]["source"]["properties"]
    assert set(kinds["prometheus"]["properties"]) == set(PROMETHEUS_OPTIONS)
    assert set(kinds["direct"]["properties"]) == set(DIRECT_OPTIONS)


def test_every_value_is_used() -> None:
    templates = "\n".join(path.read_text() for path in (CHART / "templates").iterdir())
    for name in _leaves(yaml.safe_load((CHART / "values.yaml").read_text())):
        # Such as .Values.resources for resources.limits.memory.
        parts = name.split(".")
        paths = [".".join(parts[:length]) for length in range(1, len(parts) + 1)]
        assert any(re.search(rf"\.Values\.{path}\b", templates) for path in paths), name


def test_the_notes_show_a_policy_that_is_valid() -> None:
    notes = (CHART / "templates/NOTES.txt").read_text()
    manifest = notes.partition("<<EOF\n")[2].partition("EOF\n")[0]
    body = yaml.safe_load(textwrap.dedent(manifest))
    body["metadata"] |= {"uid": "u", "generation": 1, "resourceVersion": "1"}
    body["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    assert parse_policy(body).spec.target_ref == TargetRef("apps/v1", "Deployment", "chat-8b")


def _leaves(value: Any, path: str = "") -> list[str]:
    if not isinstance(value, dict) or not value:
        return [path]
    found = []
    for key, inner in value.items():
        found += _leaves(inner, f"{path}.{key}" if path else key)
    return found
