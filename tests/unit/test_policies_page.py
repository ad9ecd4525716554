"""docs/policies.md: every policy has its paragraph and its rows, and no other has."""

from __future__ import annotations

import re

import pytest
from evictune_policies.algorithms.catalog import POLICIES

from scripts.policy_figures import FIGURES, PAGE, STUDIES, with_section


@pytest.mark.parametrize("name", STUDIES)
def test_every_policy_is_measured(name: str) -> None:
    page = PAGE.read_text("utf-8")
    section = page.split(f"<!-- measured: {name} -->")[1].split(f"<!-- end: {name} -->")[0]
    assert re.findall(r"^\| `([a-z0-9-]+)` \|", section, re.MULTILINE) == list(POLICIES)
    assert f"figures/policies-{name}.svg" in page
    assert (FIGURES / f"policies-{name}.svg").read_text("utf-8").startswith("<svg")


def test_every_policy_has_a_paragraph() -> None:
    named = re.findall(r"\*\*(`[^*]+`)\*\*", PAGE.read_text("utf-8"))
    assert sorted(re.findall(r"`([a-z0-9-]+)`", " ".join(named))) == sorted(POLICIES)


def test_the_page_says_what_changes_answers() -> None:
    text = " ".join(PAGE.read_text("utf-8").split())
    assert "None of them changes an answer." in text
    assert "Token-level eviction (H2O, StreamingLLM, SnapKV and their kin) is another thing" in text


def test_a_section_is_exchanged_and_the_rest_stays() -> None:
    page = "before\n<!-- measured: x -->\nold\n<!-- end: x -->\nafter\n"
    assert with_section(page, "x", "new") == page.replace("old", "new")
    with pytest.raises(ValueError, match="no section between <!-- measured: y -->"):
        with_section(page, "y", "new")


def test_what_another_page_quotes_is_measured() -> None:
    page = PAGE.read_text("utf-8")
    rows = (PAGE.parent / "explanation/hit-rate.md").read_text("utf-8").splitlines()
    quoted = [row for row in rows if row.startswith(("| agentic", "| Mooncake"))]
    assert len(quoted) == 2
    for row in quoted:
        _, _, *figures = row.strip("| ").split(" | ")
        assert all(f" {figure} |" in page for figure in figures), row
