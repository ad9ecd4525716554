"""What can be said of the chart without Helm."""

from __future__ import annotations

import json
import re
import shutil
import textwrap
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from evictune.api.parse import parse_policy
from evictune.api.policy import TargetRef
from evictune.api.source_definition import DIRECT_OPTIONS, PROMETHEUS_OPTIONS

from scripts import chart_files

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts/evictune"


def test_every_value_has_words_in_the_table() -> None:
    table = chart_files.table(chart_files.read_values((CHART / "values.yaml").read_text("utf-8")))
    rows = [row.strip("|").split(" | ") for row in table.splitlines()[2:]]
    assert len(rows) > 50
    assert [row[0] for row in rows if not row[-1].strip()] == []


def test_the_chart_installs_this_version_of_the_operator() -> None:
    project = tomllib.loads((ROOT / "operator/pyproject.toml").read_text())["project"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == project["version"]


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
    templates = "\n".join(
        path.read_text() for path in (CHART / "templates").rglob("*.*") if path.is_file()
    )
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


def test_what_the_chart_carries_of_other_files_is_current() -> None:
    assert chart_files.stale(ROOT) == ([], [])


def test_dashboards_and_rules_are_copied_and_what_is_gone_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(CHART, tmp_path / "charts/evictune", ignore=_copied)
    monkeypatch.chdir(tmp_path)
    for path, text in {
        "operator/evictune/dashboards/fleet.json": "{}\n",
        "rules/alerts.yaml": "groups: []\n",
        "rules/tests/alert.yaml": "rule_files: [../alerts.yaml]\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert chart_files.main(["--check"]) == 1
    assert "files/dashboards/fleet.json is not current" in capsys.readouterr().err
    assert chart_files.main([]) == 0
    files = tmp_path / "charts/evictune/files"
    assert [path.name for path in (files / "rules").iterdir()] == ["alerts.yaml"]
    assert chart_files.main(["--check"]) == 0
    (tmp_path / "operator/evictune/dashboards/fleet.json").unlink()
    assert chart_files.main(["--check"]) == 1
    assert chart_files.main([]) == 0
    assert not list((files / "dashboards").iterdir())


@pytest.mark.parametrize(
    "page", ["docs/how-to/install.md", "charts/evictune/README.md", "README.md"]
)
def test_pages_set_only_values_that_exist(page: str) -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    named = re.findall(r'--set "?([A-Za-z.]+)=', (ROOT / page).read_text())
    assert named
    for path in named:
        found = values
        for part in path.split("."):
            if found == {}:  # its entries are the user's, such as sources
                break
            assert part in found, path
            found = found[part]


def test_the_installation_page_names_the_current_chart() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    text = (ROOT / "docs/how-to/install.md").read_text()
    assert set(re.findall(r"evictune-([0-9.]+)\.tgz", text)) == {chart["version"]}
    assert set(re.findall(r"evictune[a-z-]*:([0-9.]*[0-9])", text)) == {chart["appVersion"]}


def test_the_images_of_the_installation_page_are_those_that_are_used() -> None:
    text = (ROOT / "docs/how-to/install.md").read_text()
    dockerfile = (ROOT / "Dockerfile").read_text()
    built = set(re.findall(r"--target ([a-z]+)", text))
    assert built == set(re.findall(r"^FROM scratch AS (\w+)$", dockerfile, re.MULTILINE))
    for registry in ("registry.example", "registry.internal"):
        pushed = set(re.findall(rf"docker push {registry}/(\S+):", text))
        assert pushed == {"evictune", "evictune-plugin"}, registry
    # Where the notes of the chart, which know only the operator's image, look for the plugin's.
    helpers = (CHART / "templates/_helpers.tpl").read_text()
    assert 'printf "%s-plugin:%s" .Values.image.repository' in helpers
    for page in ("docs/how-to/install.md", "README.md"):
        used = re.findall(r"--plugin-image (\S+)", (ROOT / page).read_text())
        assert set(used) == {"registry.example/evictune-plugin:0.1.0"}, page
    assert set(re.findall(r"image\.repository=\S+/(\S+)", text)) == {"evictune"}


def test_the_images_say_the_version_that_they_hold() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    for name, distribution in (("operator", "operator"), ("plugin", "policies")):
        stage = dockerfile.partition(f"FROM scratch AS {name}\n")[2].partition("\nFROM ")[0]
        project = tomllib.loads((ROOT / distribution / "pyproject.toml").read_text())["project"]
        assert f"ARG VERSION={project['version']}\n" in stage
        assert 'image.version="${VERSION}"' in stage
        assert "\nUSER 65532:65532\n" in stage


def test_a_value_whose_kind_cannot_be_told_needs_an_annotation() -> None:
    with pytest.raises(ValueError, match=r"a\.b needs a line of @schema"):
        chart_files.schema(chart_files.read_values("a:\n  b: {}\n"))
    values = chart_files.read_values("# Words.\n# @schema {enum: [x, y]}\na: x\n")
    assert chart_files.schema(values)["properties"]["a"] == {
        "description": "Words.",
        "enum": ["x", "y"],
    }
    with pytest.raises(ValueError, match="a: @schema must be an object"):
        chart_files.read_values("# @schema string\na: x\n")


def _copied(directory: str, names: list[str]) -> set[str]:
    """The copies, which this test makes itself."""
    return {"dashboards", "rules"} & set(names) if directory.endswith("files") else set()
