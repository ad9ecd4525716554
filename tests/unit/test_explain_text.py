"""`evictune explain`: everything a person on call asks, within 100 columns."""

from __future__ import annotations

import re
from typing import Any

import pytest
from evictune.act.knobs import StoredKnobs
from evictune.api.knobs import KnobDocument, KnobValues
from evictune.api.parse import parse_policy
from evictune.api.quantity import format_span
from evictune.api.times import parse_time
from evictune.console.explain import render
from evictune.console.paper import WIDTH, Paper
from evictune.console.subjects import Subject

NOW = parse_time("2026-11-29T12:30:00Z")
LONG = "Prompts are prefilled again because their cached blocks were evicted, " * 3


def condition(kind: str, status: str, reason: str, message: str) -> dict[str, str]:
    return {"type": kind, "status": status, "reason": reason, "message": message}


STATUS: dict[str, Any] = {
    "observedGeneration": 1,
    "regime": {"name": "ReuseLost", "since": "2026-11-29T12:20:00Z", "message": LONG},
    "observed": {
        "ttft": {
            "lower": "1s",
            "upper": "1.25s",
            "estimate": "1.1s",
            "requests": "340",
            "aboveThreshold": "0.08",
        },
        "hitRatio": "0.52",
        "queueTime": "2ms",
        "evictedProtected": "0",
    },
    "engines": {"total": 2, "ready": 2, "acknowledged": 1, "ineligible": 0},
    "applied": {"revision": 3, "decisionID": "d-3", "values": {"xiTokens": 512, "qHatTokens": 60}},
    "pending": {
        "decisionID": "d-4",
        "revision": 4,
        "phase": "Acknowledging",
        "from": {"xiTokens": 512, "qHatTokens": 60},
        "to": {"xiTokens": 1024, "qHatTokens": 60},
        "reason": "ReuseLost",
        "startTime": "2026-11-29T12:29:30Z",
    },
    "recommendation": {
        "target": {"xiTokens": 1024, "qHatTokens": 60},
        "uncapped": {"xiTokens": 2048, "qHatTokens": 60},
        "basis": "blocks were evicted from the protected region",
    },
    "conditions": [
        condition("Ready", "True", "Ready", "The policy is being followed."),
        condition("SLOMet", "False", "ObjectiveViolated", "p99 is at least 1s; wanted 800ms"),
        condition("PolicyActive", "Unknown", "PolicyNotActive", "1 of 2 engines acknowledged"),
    ],
    "decisions": [
        {
            "decisionID": "d-3",
            "time": "2026-11-29T12:00:00Z",
            "reason": "Kept",
            "message": "p99 fell from 2s to 1s",
            "from": {},
            "to": {"xiTokens": 512, "qHatTokens": 60},
        },
        {
            "decisionID": "d-4",
            "time": "2026-11-29T12:29:30Z",
            "reason": "Intended",
            "message": "xi is too small for what is protected",
            "from": {"xiTokens": 512, "qHatTokens": 60},
            "to": {"xiTokens": 1024, "qHatTokens": 60},
        },
    ],
    "quarantine": [
        {
            "values": {"xiTokens": 256, "qHatTokens": 60},
            "fingerprint": "x",
            "until": "2026-11-29T18:30:00Z",
            "reason": "Reverted",
            "ttft": "1.9s",
            "tooSmall": True,
        }
    ],
}


def text_of(
    status: dict[str, Any], stored: StoredKnobs, *, colored: bool = False, width: int = WIDTH
) -> str:
    body = {
        "metadata": {"namespace": "serve-a", "name": "chat", "generation": 1},
        "spec": {
            "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "chat-8b"},
            "slo": {"ttft": {"quantile": "0.99", "threshold": "800ms"}},
            "mode": "Auto",
        },
        "status": status,
    }
    return render(Subject(body, parse_policy(body), stored), Paper(NOW, colored, width))


IN_FORCE = StoredKnobs(KnobDocument(3, KnobValues(512, 60), NOW + 1800))


def test_it_tells_what_was_seen_believed_and_decided() -> None:
    text = text_of(STATUS, IN_FORCE)
    for part in (
        "serve-a/chat  ·  Deployment chat-8b  ·  mode Auto  ·  p99 of TTFT at most 800ms",
        "DIAGNOSIS  ReuseLost, since 10m ago",
        "xi_tokens decides what is evicted first",
        "p99; buckets say 1s to 1.25s; 340 requests; 8% above 800ms",
        "2 of 2 pods ready, 1 acknowledged",
        "IN FORCE  T-LRU with xi 512, qHat 60",
        "revision 3, expires in 30m unless renewed",
        "UNDER WAY  T-LRU with xi 512, qHat 60 → T-LRU with xi 1024, qHat 60",
        "Acknowledging, begun 30s ago, revision 4",
        "RECOMMENDED  T-LRU with xi 1024, qHat 60",
        "without bounds T-LRU with xi 2048, qHat 60",
        "✔ Ready",
        "✘ SLOMet",
        "? PolicyActive",
        "→ Wire the workload",
        "30m ago Kept p99 fell from 2s to 1s",
        "T-LRU with xi 256, qHat 60, TTFT 1.9s, more was protected than fits; forgotten in 6h",
    ):
        assert re.sub(r"\s+", " ", part) in re.sub(r"\s+", " ", text), part
    assert text.index("Intended") < text.index("Kept")


@pytest.mark.parametrize("width", [60, 80, 100, 120])
@pytest.mark.parametrize("colored", [False, True])
def test_no_line_is_wider_than_a_terminal(colored: bool, width: int) -> None:
    text = text_of(STATUS, IN_FORCE, colored=colored, width=width)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    assert max(map(len, plain.splitlines())) <= width
    assert ("\x1b[" in text) is colored


def test_readings_without_a_value_are_gathered_in_one_line() -> None:
    words = ("lower", "upper", "estimate", "requests", "aboveThreshold")
    observed = {"ttft": dict.fromkeys(words, "Unknown"), "hitRatio": "Unknown", "running": "Idle"}
    text = text_of(STATUS | {"observed": observed}, IN_FORCE)
    assert re.search(r"unknown +TTFT, hit ratio\n", text)
    assert re.search(r"running +Idle +requests\n", text)


def test_a_ttft_of_which_only_part_was_written_is_told_so_far() -> None:
    text = text_of(STATUS | {"observed": {"ttft": {"estimate": "1.1s"}}}, IN_FORCE)
    assert re.search(r"TTFT +1\.1s +p99\n", text)
    assert "None" not in text


def test_a_policy_nobody_looked_at_says_so() -> None:
    assert "is the operator running" in text_of({}, StoredKnobs())


def test_without_a_document_stock_lru_is_in_force() -> None:
    assert "IN FORCE  stock LRU: there is no knob document" in text_of(STATUS, StoredKnobs())


def test_a_document_that_expired_is_not_in_force() -> None:
    expired = StoredKnobs(KnobDocument(3, KnobValues(512, 60), NOW - 120))
    assert "stock LRU: the knob document expired 2m ago" in text_of(STATUS, expired)


def test_who_changed_the_document_is_named() -> None:
    edited = StoredKnobs(IN_FORCE.document, "kubectl-edit")
    assert "field manager kubectl-edit; left alone" in text_of(STATUS, edited)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (59, "59s"),
        (60, "1m"),
        (61, "1m1s"),
        (3600, "1h"),
        (3720, "1h2m"),
        (90000, "1d1h"),
    ],
)
def test_spans(seconds: float, text: str) -> None:
    assert format_span(seconds) == text
