"""The alerts and their pages: complete, true to the code, and nothing that does not exist."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from evictune.api.decision import ConditionType
from evictune.api.reasons import REASONS
from evictune.console.parser import make_parser

from tests.support.alert_rules import (
    ROOT,
    TESTS,
    alerts,
    page_name,
    queries,
    recorded,
    rules,
)
from tests.support.docs_pages import Command, blocks, commands, inline_commands
from tests.support.promql_names import exported, names_in

PAGES = ROOT / "docs/runbooks"
INDEX = PAGES / "README.md"
SECTIONS = ["Meaning", "Impact", "Diagnosis", "Mitigation"]
ALERTS = sorted(alerts())
# Made by Prometheus itself.
OF_PROMETHEUS = {"up"}
# What kubectl takes is asked of kubectl itself, in tests/integration/test_runbook_commands.py.
TOOLS = {"kubectl", "grep"}


def pages_base() -> str:
    values = yaml.safe_load((ROOT / "charts/evictune/values.yaml").read_text("utf-8"))
    return str(values["rules"]["runbooks"])


def read(path: Path) -> str:
    return path.read_text("utf-8")


def typed(page: Path) -> list[Command]:
    """The page's commands, in blocks and between backticks."""
    return [*commands(page), *inline_commands(page)]


def shown(page: Path) -> list[str]:
    """The page's queries."""
    found = [block.text for block in blocks(page) if block.language == "promql"]
    return [line.strip() for text in found for line in text.splitlines() if line.strip()]


@functools.cache
def examples() -> list[dict[str, Any]]:
    """Every time at which promtool is told which alerts shall fire."""
    tests = [test for path in TESTS for test in yaml.safe_load(read(path))["tests"]]
    return [each for test in tests for each in test.get("alert_rule_test", [])]


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.get("alert") or rule["record"])
def test_every_series_that_a_rule_reads_exists(rule: dict[str, str]) -> None:
    asked = queries(rule)
    assert len(asked) == 1 + str(rule.get("annotations", "")).count("| query")
    found = set().union(*(names_in(query) for query in asked))
    assert found
    assert found <= exported() | recorded()


def test_names_are_found_wherever_they_stand_in_an_expression() -> None:
    text = """
        max by (a) (one{b="c"}) > on () group_left () x:y:z
        or max_over_time({__name__="two"}[5m:1m] offset 1h) unless absent(-three) and rate(four[5m])
    """
    assert names_in(text) == {"one", "x:y:z", "two", "three", "four"}


@pytest.mark.parametrize("text", ['{pod="a"}', '{__name__=~"a.*"}', "rate("])
def test_what_names_no_series_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"which metric is meant|unclosed"):
        names_in(text)


def test_names_that_are_nearly_right_are_not_exported() -> None:
    near = {"evictune_decisions", "vllm:time_to_first_token_seconds", "evictune_tick_seconds", "up"}
    assert not near & exported()


@pytest.mark.parametrize("name", ALERTS)
def test_conditions_reasons_and_labels_that_an_alert_asks_for_exist(name: str) -> None:
    expression = alerts()[name]["expr"]
    for reasons in re.findall(r'(?:reason|regime)[!=]~?"([^"]+)"', expression):
        assert set(reasons.split("|")) <= set(REASONS)
    for condition in re.findall(r'condition="([^"]+)"', expression):
        assert condition in set(ConditionType)


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_says_how_bad_it_is_what_it_means_and_where_to_read_on(name: str) -> None:
    rule = alerts()[name]
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}
    assert rule["annotations"]["runbook_url"] == f"{pages_base()}/{page_name(name)}"
    assert rule["for"]


def test_every_alert_has_its_page_and_every_page_its_alert() -> None:
    pages = {path.stem for path in PAGES.glob("*.md")} - {INDEX.stem}
    assert pages == {page_name(name) for name in alerts()}
    assert page_name("EvictuneSLOBurnFast") == "evictune-slo-burn-fast"


@pytest.mark.parametrize("name", ALERTS)
def test_a_page_has_the_parts_that_one_looks_for(name: str) -> None:
    text = read(PAGES / f"{page_name(name)}.md")
    assert text.startswith(f"# {name}\n")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == SECTIONS
    assert f"[{name}]({page_name(name)}.md) | {alerts()[name]['labels']['severity']} |" in read(
        INDEX
    )


@pytest.mark.parametrize("path", sorted(PAGES.glob("*.md")), ids=lambda path: path.stem)
def test_what_a_page_has_people_type_exists(path: Path) -> None:
    for command in typed(path):
        if command.words[0] == "evictune":
            make_parser().parse_args(command.words[1:])
        else:
            assert command.words[0] in TOOLS, command
    for query in shown(path):
        assert names_in(query) <= exported() | recorded() | OF_PROMETHEUS, query


@pytest.mark.parametrize("path", sorted(PAGES.glob("*.md")), ids=lambda path: path.stem)
def test_links_of_a_page_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", read(path)):
        assert (path.parent / target).exists(), target


def test_every_page_shows_commands_and_queries() -> None:
    for name in alerts():
        page = PAGES / f"{page_name(name)}.md"
        assert list(commands(page)), name
        assert shown(page), name


def test_a_command_that_does_not_exist_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```sh\nkubectl get pods | evictune wire --chek -\n```\n`evictune explain a \\| grep b`\n"
    )
    assert [command.words for command in typed(page)] == [
        ("kubectl", "get", "pods"),
        ("evictune", "wire", "--chek", "-"),
        ("evictune", "explain", "a"),
        ("grep", "b"),
    ]
    with pytest.raises(SystemExit):
        make_parser().parse_args(["wire", "--chek", "-"])


def test_every_recorded_series_is_described() -> None:
    for name in recorded():
        assert f"| `{name}` |" in read(INDEX)


@pytest.mark.parametrize("name", ALERTS)
def test_promtool_is_asked_when_an_alert_fires_and_when_it_does_not(name: str) -> None:
    asked = [each for each in examples() if each["alertname"] == name]
    fires = [each for each in asked if each.get("exp_alerts")]
    assert fires
    assert len(asked) > len(fires)
    for each in fires:
        assert all(alert["exp_annotations"]["summary"] for alert in each["exp_alerts"])
