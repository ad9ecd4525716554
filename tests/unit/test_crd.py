"""The generated definition: current, structural, described, without floats."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from evictune.api.crd import crd
from evictune.api.reasons import Kind, Reason
from evictune.api.reference import reference_markdown, regimes_markdown
from evictune.generate import generated, main, stale

ROOT = Path(__file__).parents[2]


def _version() -> dict[str, Any]:
    versions: list[dict[str, Any]] = crd()["spec"]["versions"]
    return versions[0]


def _fields(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    for name, field in schema.get("properties", {}).items():
        yield f"{path}.{name}", field
        yield from _fields(field, f"{path}.{name}")
        if "items" in field:
            yield from _fields(field["items"], f"{path}.{name}[]")


FIELDS = dict(_fields(_version()["schema"]["openAPIV3Schema"]))


def test_generated_files_are_current() -> None:
    assert stale(ROOT) == []


def test_generate_writes_what_check_misses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["--check"]) == 1
    assert "make generate" in capsys.readouterr().err
    assert main([]) == 0
    assert main(["--check"]) == 0
    path = next(iter(generated()))
    (tmp_path / path).write_text("edited by hand")
    assert main(["--check"]) == 1


@pytest.mark.parametrize("path", [path for path in FIELDS if path != ".metadata"])
def test_every_field_is_described(path: str) -> None:
    description = FIELDS[path]["description"]
    assert description.endswith(".")


def test_no_field_is_a_float() -> None:
    assert {field["type"] for field in FIELDS.values()} == {
        "string", "integer", "boolean", "object", "array",
    }  # fmt: skip


def test_every_list_says_how_it_is_merged() -> None:
    lists = {path: field for path, field in FIELDS.items() if field["type"] == "array"}
    assert lists[".status.conditions"]["x-kubernetes-list-map-keys"] == ["type"]
    assert all(
        "x-kubernetes-list-type" in field and "maxItems" in field for field in lists.values()
    )
    assert lists[".status.decisions"]["maxItems"] == 10
    assert lists[".status.quarantine"]["maxItems"] == 32


def test_defaults_stand_in_the_schema() -> None:
    assert FIELDS[".spec.mode"]["default"] == "Recommend"
    assert FIELDS[".spec.behavior"]["default"] == {
        "interval": "30s", "settle": "5m", "cooldown": "10m", "tolerance": "0.10", "knobTTL": "1h",
        "disruption": {"policy": "Never", "maxPerDay": 2, "drainTimeout": "2m"},
    }  # fmt: skip
    assert FIELDS[".spec.slo.ttft.minRequests"]["default"] == 300


def test_names_subresource_and_columns() -> None:
    names = crd()["spec"]["names"]
    assert (names["plural"], names["shortNames"]) == ("evictionpolicies", ["evp"])
    assert _version()["subresources"] == {"status": {}}
    columns = _version()["additionalPrinterColumns"]
    shown = [column["name"] for column in columns if not column["priority"]]
    assert shown == ["Mode", "TTFT", "SLO met", "State", "xi", "Age"]
    wide = [column["name"] for column in columns if column["priority"]]
    assert wide == ["Target", "Suspended", "Ready"]


def test_an_uninstalled_chart_keeps_the_policies() -> None:
    assert crd()["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}


def test_the_reference_names_every_field() -> None:
    page = reference_markdown()
    missing = [
        path for path in FIELDS
        if path.startswith((".spec.", ".status.")) and f"`{path[1:]}`" not in page
    ]  # fmt: skip
    assert missing == []


def test_the_page_of_reasons_names_every_reason_once() -> None:
    page = regimes_markdown()
    assert [reason for reason in Reason if page.count(f"| `{reason}` |") != 1] == []
    assert all(kind.value.capitalize() in page for kind in Kind)
