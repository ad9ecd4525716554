"""policies/presets: each is a policy that the operator follows, and that its page explains."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from evictune.api.parse import parse_policy
from evictune.api.policy import MAX_TOKENS, EvictionPolicySpec, Mode
from evictune.decide.candidates import grid

from scripts.policy_figures import PAGE as MEASURED
from tests.support.docs_pages import DOCS, ROOT, anchors

PAGE = DOCS / "how-to/presets.md"
PRESETS = sorted((ROOT / "policies/presets").glob("*.yaml"))


def spec(path: Path) -> EvictionPolicySpec:
    return parse_policy(yaml.safe_load(path.read_text())).spec


@pytest.mark.parametrize("path", PRESETS, ids=lambda path: path.stem)
def test_the_operator_takes_it(path: Path) -> None:
    policy = spec(path)
    # Nobody's production is changed by applying a file that he did not write.
    assert policy.mode is not Mode.AUTO
    # A quantile is told by what lies above it: three requests at least.
    above = (1 - float(policy.slo.ttft.quantile)) * policy.slo.ttft.min_requests
    assert above >= 2.999
    assert (policy.mode is Mode.OBSERVE) == (policy.knobs.tlru is None)


@pytest.mark.parametrize("path", PRESETS, ids=lambda path: path.stem)
def test_ranges_leave_room_to_search(path: Path) -> None:
    knobs = spec(path).knobs.tlru
    if knobs is None:
        return
    xi, q_hat = knobs.xi_tokens, knobs.q_hat_tokens
    # With xi up to q_hat all of every conversation is protected, which is LRU.
    assert q_hat.minimum < xi.minimum < xi.maximum <= MAX_TOKENS
    assert q_hat.minimum < q_hat.maximum < xi.maximum
    assert len(grid(xi, 32)) >= 5


@pytest.mark.parametrize("path", PRESETS, ids=lambda path: path.stem)
def test_it_says_why(path: Path) -> None:
    text = path.read_text()
    assert f"docs/how-to/presets.md#{path.stem}" in text
    assert text.count("#") > 4
    assert path.stem in anchors(PAGE)
    assert f"policies/presets/{path.name}" in PAGE.read_text("utf-8")


@pytest.mark.parametrize("name", ["prefix-lru", "t-lru", "infinite"])
def test_its_figures_are_those_that_are_measured(name: str) -> None:
    """docs/policies.md is compared with a replay; this page quotes it."""
    shown = {"prefix-lru": "stock LRU", "t-lru": "T-LRU", "infinite": "nothing evicted"}[name]
    quoted = re.findall(rf"^\| {shown} \| (.*) \|$", PAGE.read_text("utf-8"), re.MULTILINE)
    measured = re.findall(rf"^\| `{name}` \| (.*) \|$", MEASURED.read_text("utf-8"), re.MULTILINE)
    assert len(quoted) == len(measured) == 2
    for row, source in zip(quoted, measured, strict=True):
        _, hits, _, above, _, _, p50, p95, p99 = source.split(" | ")
        assert row.split(" | ") == [hits, above, p50, p95, p99]
