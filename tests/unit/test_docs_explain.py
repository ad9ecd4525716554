"""What the documentation shows of `evictune explain` is what it prints."""

from __future__ import annotations

from typing import Any

from evictune.act.knobs import StoredKnobs
from evictune.api.parse import parse_policy
from evictune.api.reasons import Kind, Reason
from evictune.api.times import parse_time
from evictune.console.explain import render
from evictune.console.paper import Paper
from evictune.console.subjects import Subject

from tests.support.docs_pages import DOCS, blocks

NOW = parse_time("2026-11-29T12:30:00Z")
PAGE = DOCS / "how-to/regimes.md"
BODY: dict[str, Any] = {
    "metadata": {"namespace": "serving", "name": "chat-8b", "generation": 1},
    "spec": {
        "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "chat-8b"},
        "slo": {"ttft": {"quantile": "0.99", "threshold": "800ms"}},
        "mode": "Auto",
    },
    "status": {
        "regime": {
            "name": "ReuseLost",
            "since": "2026-11-29T12:20:00Z",
            "message": "TTFT p99 1.1s is above the threshold 800ms; 5210 cached blocks were "
            "evicted within the window.",
        },
        "observed": {
            "ttft": {
                "lower": "1s",
                "upper": "1.25s",
                "estimate": "1.1s",
                "requests": "340",
                "aboveThreshold": "0.08",
            },
            "queueTime": "2ms",
            "hitRatio": "0.52",
            "evictedProtected": "0",
        },
    },
}


def test_the_page_s_sample_is_what_is_printed() -> None:
    printed = render(Subject(BODY, parse_policy(BODY), StoredKnobs()), Paper(NOW, False, 100))
    (sample,) = [block.text for block in blocks(PAGE) if "DIAGNOSIS" in block.text]
    assert printed.startswith(sample)


def test_every_regime_has_its_row() -> None:
    text = PAGE.read_text("utf-8")
    for reason in Reason:
        if reason.kind is Kind.REGIME:
            assert f"\n| `{reason}` | " in text, reason
