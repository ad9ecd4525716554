"""rules/alerts.yaml as Python has it."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "rules/alerts.yaml"
TESTS = sorted((ROOT / "rules/tests").glob("*.yaml"))
# A query within a template: its text, in which %s stands for a label's value.
_QUERY = re.compile(r'printf "([^"]*)"[^}]*\| query')

Rule = dict[str, Any]


@functools.cache
def rules() -> list[Rule]:
    """All rules, in their order."""
    return [
        rule
        for group in yaml.safe_load(RULES.read_text("utf-8"))["groups"]
        for rule in group["rules"]
    ]


def alerts() -> dict[str, Rule]:
    """The alerts by name."""
    return {rule["alert"]: rule for rule in rules() if "alert" in rule}


def recorded() -> set[str]:
    """The names of the recorded series."""
    return {rule["record"] for rule in rules() if "record" in rule}


def queries(rule: Rule) -> list[str]:
    """The expression, and those that its annotations ask for values."""
    texts = rule.get("annotations", {}).values()
    asked = [query for text in texts for query in _QUERY.findall(text)]
    return [rule["expr"], *(re.sub("%[a-z]", "0", query) for query in asked)]


def page_name(alert: str) -> str:
    """The name of an alert's page: EvictuneSLOBurnFast -> evictune-slo-burn-fast."""
    words = re.findall(r"[A-Z]+(?=[A-Z][a-z])|[A-Z][a-z]+", alert)
    return "-".join(words).lower()
