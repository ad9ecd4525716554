"""The dashboards' JSON: complete, at fixed addresses, and of series that somebody exports."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from evictune.api.decision import ConditionType
from evictune.api.observation import Observation, TargetState, Unknown
from evictune.api.reasons import Reason
from evictune.console.parser import BOARDS as CHOICES
from evictune.observe.dialects import NAMES, PLUGIN_RECOMPUTED, Engine, Measure, names_of
from evictune.preview.boards import NAMES as BOARDS
from evictune.preview.boards import load
from evictune.preview.chosen import builtin, replaced
from evictune.tick import readings_of
from evictune_policies.engine.metrics import Report, families

from dashboards.__main__ import DIRECTORY, generated, stale
from dashboards.panels import RUNBOOKS
from tests.support.promql_names import exported, names_in

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "tests/data/exposition/vllm-0.32.0"
UIDS = {"evictune-fleet", "evictune-policy", "evictune-engine", "evictune-operator"}
Object = dict[str, Any]


def boards() -> list[Object]:
    return [json.loads(text) for text in generated().values()]


def panels() -> list[Object]:
    return [each for of in boards() for each in of["panels"] if each["type"] != "row"]


def expressions() -> list[str]:
    """Every query, with values in place of variables."""
    queries = [each["expr"] for of in panels() for each in of["targets"]]
    for of in boards():
        queries += [each["expr"] for each in of["annotations"].get("list", ())]
    queries += [variable.series for of in load() for variable in of.variables]
    names = ("namespace", "policy", "pod")
    return [replaced(each, {**builtin(15, 15), **dict.fromkeys(names, "any")}) for each in queries]


def asked() -> set[str]:
    return {name for each in expressions() for name in names_in(each)}


def of_plugin() -> set[str]:
    report = Report("0", "t-lru", 512, 60, 1, "", {"lru": 1}, 1, 0.0, 1, {"Foreign": 1}, ("a", "b"))
    return {sample.name for family in families([report]) for sample in family.samples}


def test_the_files_are_current_and_the_same_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert stale(DIRECTORY) == []
    assert generated() == generated()


def test_a_changed_file_and_one_of_no_dashboard_are_told(tmp_path: Path) -> None:
    for name, text in generated().items():
        (tmp_path / name).write_text(text)
    assert stale(tmp_path) == []
    (tmp_path / "fleet.json").write_text("{}")
    (tmp_path / "gone.json").write_text("{}")
    assert stale(tmp_path) == [tmp_path / "fleet.json", tmp_path / "gone.json"]


def test_every_dashboard_is_found_where_it_is_installed() -> None:
    assert {each.uid for each in load()} == UIDS
    assert [f"{name}.json" for name in BOARDS] == list(generated())
    assert BOARDS == CHOICES


def test_addresses_are_fixed_and_no_two_are_the_same() -> None:
    uids = [each["uid"] for each in boards()]
    assert len(uids) == len(UIDS)
    assert set(uids) == UIDS
    for of in boards():
        ids = [each["id"] for each in of["panels"]]
        assert len(ids) == len(set(ids))
        titles = [each["title"] for each in of["panels"]]
        assert len(titles) == len(set(titles)), of["uid"]


@pytest.mark.parametrize("panel", panels(), ids=lambda panel: panel["title"])
def test_a_panel_says_what_it_shows(panel: Object) -> None:
    assert len(panel["description"].split()) >= 5
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert panel["targets"]
    refs = [each["refId"] for each in panel["targets"]]
    assert all(refs)
    assert len(refs) == len(set(refs))
    if panel["type"] != "table" and len(panel["targets"]) > 1:
        assert all(each["legendFormat"] for each in panel["targets"])


def test_a_number_is_the_present_one() -> None:
    """Over a range it would be the last that there was, however long ago."""
    numbers = [each for each in panels() if each["type"] == "stat"]
    assert numbers
    for each in numbers:
        assert [(of["instant"], of.get("range")) for of in each["targets"]] == [(True, False)]


def test_panels_do_not_overlap_and_fill_their_lines() -> None:
    for of in boards():
        cells = {each["id"]: set(_cells(each["gridPos"])) for each in of["panels"]}
        for (one, first), (other, second) in combinations(cells.items(), 2):
            assert not first & second, (of["uid"], one, other)
        covered = set().union(*cells.values())
        assert {x for x, _ in covered} == set(range(24))
        assert len(covered) == 24 * (1 + max(y for _, y in covered)), of["uid"]


def _cells(place: dict[str, int]) -> Iterator[tuple[int, int]]:
    for x in range(place["x"], place["x"] + place["w"]):
        for y in range(place["y"], place["y"] + place["h"]):
            yield x, y


def test_every_series_is_exported_by_operator_plugin_or_engine() -> None:
    assert asked() - exported() == set()


def test_a_series_that_nobody_exports_would_be_told() -> None:
    text = 'sum(rate({__name__=~"vllm:kv_cache_usage_perc|vllm:kv_used"}[5m])) / evictune_gone'
    assert names_in(text) - exported() == {"vllm:kv_used", "evictune_gone"}


def test_the_names_are_on_the_pages_of_a_real_engine_and_its_plugin() -> None:
    text = "\n".join(path.read_text() for path in PAGES.iterdir())
    there = set(re.findall(r"^([\w:]+)[{ ]", text, re.MULTILINE))
    # What the release has: of each measure the preferred name.
    current = {name.sample for name in NAMES if name.engine is Engine.VLLM and not name.until}
    assert asked() & current <= there
    # One counter is younger than the captures; the recorded run has it (tests/integration).
    assert (asked() & of_plugin()) - {PLUGIN_RECOMPUTED} <= there
    assert len(asked() & current) >= 12
    assert len(asked() & of_plugin()) >= 7


def test_every_name_of_a_measure_is_asked_for() -> None:
    for measure in Measure:
        if measure in (Measure.PREFILL_SECONDS, Measure.PREFILL_TOKENS, Measure.PROMPTS):
            continue  # no panel shows them
        for name in names_of(measure):
            assert set(name.spellings) <= asked(), name.base


def test_label_values_are_those_of_the_operator() -> None:
    unknown = Unknown(Reason.NOT_MEASURABLE, "")
    known = {
        "reading": set(readings_of(Observation(TargetState(False), (), *[unknown] * 12))),
        "condition": {str(each) for each in ConditionType},
        "regime": {str(each) for each in Reason},
        "reason": {str(each) for each in Reason},
        "knob": {"xi", "q_hat"},
    }
    for expression in expressions():
        for label, values in re.findall(r"(\w+)=~?\"([^\"$]+)\"", expression):
            if label in known:
                assert set(values.split("|")) <= known[label], expression


def test_links_lead_to_dashboards_that_there_are() -> None:
    found = re.findall(r"/d/([\w-]+)", "".join(generated().values()))
    assert found
    assert set(found) <= UIDS


def test_every_runbook_that_is_linked_is_there() -> None:
    found = set(re.findall(rf'"{re.escape(RUNBOOKS)}([\w-]+)"', "".join(generated().values())))
    assert len(found) >= 7
    for name in found:
        assert (ROOT / f"docs/runbooks/{name}.md").is_file(), name


def test_variables_choose_source_and_namespace() -> None:
    for of in boards():
        names = [each["name"] for each in of["templating"]["list"]]
        assert names[:2] == ["datasource", "namespace"]
        for panel in of["panels"]:
            if panel["type"] != "row":
                assert panel["datasource"] == {"type": "prometheus", "uid": "$datasource"}
