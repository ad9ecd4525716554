"""Percentiles, the comparison, its rule, and the report made of it."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from demo.constants import LOAD
from demo.load import Answer, Kind, Request
from demo.record import Arm, Outcome, Sample, Step, last_part, numbers, percentile
from demo.report import write_report
from demo.summary import Summary, summarise, text_table, write_json

PROMPT = tuple(range(100))
COUNTED = tuple(phase.name for phase in LOAD.phases if phase.counted)


def arm(name: str, uncached: int, ttft: float, requests: int = 50) -> Arm:
    """Every tenth request is slow and misses `uncached` of its 100 tokens; the rest hit."""
    outcomes = []
    for number in range(requests * len(COUNTED)):
        phase = COUNTED[number // requests]
        slow = number % 10 == 0
        request = Request(number, phase, True, Kind.TURN, 0, PROMPT, 8)
        answer = Answer(
            started=1000.0 + number,
            ttft=ttft if slow else 0.05,
            duration=ttft + 0.1,
            prompt_tokens=len(PROMPT),
            cached_tokens=len(PROMPT) - (uncached if slow else 10),
        )
        outcomes.append(Outcome(request, answer))
    samples = [Sample(1000.0, None, 0), Sample(1030.0, 512, 1)]
    steps = [Step(1020.0, "Intended", "why <b>"), Step(1030.0, "Acknowledged", "in force")]
    return Arm(name, name, outcomes, samples, steps)


def compare(lru: Arm, loop: Arm) -> Summary:
    return summarise(lru, loop, 0.2, {"process id": 42})


@pytest.mark.parametrize(
    ("share", "expected"), [(0.5, 2), (0.51, 3), (0.75, 3), (0.99, 4), (0.0, 1)]
)
def test_percentile_is_by_nearest_rank(share: float, expected: int) -> None:
    assert percentile([4, 1, 3, 2], share) == expected


def test_percentile_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)


def test_numbers_count_tokens_as_the_api_does() -> None:
    figures = numbers(arm("x", uncached=90, ttft=0.5).outcomes[:10])
    assert (figures.uncached_p50, figures.uncached_p99) == (10, 90)
    assert figures.uncached_total == 90 + 9 * 10
    assert figures.hit_ratio == pytest.approx(1 - 180 / 1000)
    assert figures.ttft_p99 == 0.5


def test_the_last_part_is_the_same_requests_in_both_arms() -> None:
    one, other = arm("x", 90, 0.5), arm("y", 20, 0.1)
    parts = [[o.request for o in last_part(a.outcomes, 0.4)] for a in (one, other)]
    assert parts[0] == parts[1]
    assert len(parts[0]) == 40


def test_lower_tails_are_better() -> None:
    assert compare(arm("lru", 90, 0.5), arm("loop", 40, 0.2)).better


@pytest.mark.parametrize(
    ("uncached", "ttft", "why"),
    [
        (85, 0.2, "uncached tokens p99 at least 10% lower"),
        (40, 0.5, "time to first token p99 lower"),
        (90, 0.2, "fewer uncached tokens"),
    ],
)
def test_what_is_not_better_is_said(uncached: int, ttft: float, why: str) -> None:
    summary = compare(arm("lru", 90, 0.5), arm("loop", uncached, ttft))
    assert not summary.better
    assert any(why in claim.text for claim in summary.claims if not claim.holds)


def test_arms_of_different_loads_are_not_compared() -> None:
    with pytest.raises(ValueError, match="same requests"):
        compare(arm("lru", 90, 0.5), arm("loop", 40, 0.2, requests=49))


def test_what_only_the_loop_was_sent_is_not_compared() -> None:
    lru, loop = arm("lru", 90, 0.5), arm("loop", 40, 0.2)
    expected = compare(lru, loop)
    request = Request(len(loop.outcomes), LOAD.encore.name, False, Kind.TURN, 0, PROMPT, 8)
    loop.outcomes.append(Outcome(request, Answer(2000.0, 9.0, 9.0, len(PROMPT), 0)))
    assert compare(lru, loop).comparisons == expected.comparisons


def test_the_table_has_a_column_for_every_figure() -> None:
    header, rule, *rows = text_table(
        compare(arm("lru", 90, 0.5), arm("loop", 40, 0.2)).comparisons
    ).splitlines()
    assert len(rows) == 3 * 2 * len(COUNTED)
    assert set(rule) == {"-"}
    assert all(len(row) == len(header) for row in rows)
    assert "-60%" in rows[2]


def test_the_json_says_what_was_compared_and_how(tmp_path: Path) -> None:
    summary = compare(arm("lru", 90, 0.5), arm("loop", 40, 0.2))
    write_json(summary, tmp_path / "summary.json")
    written = json.loads((tmp_path / "summary.json").read_text())
    assert written["better"] is True
    assert {phase["part"] for phase in written["phases"]} == {"whole phase", "last 40%"}
    assert written["phases"][0]["loop"]["uncached_p99"] == 40
    assert written["constants"]["load"]["document_tokens"] == LOAD.document_tokens


class References(HTMLParser):
    """Collects whatever would make a browser fetch or run something."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag in {"script", "link", "iframe", "img", "object"}:
            self.found.append(tag)
        self.found += [
            f"{tag} {name}={value}"
            for name, value in attributes
            if name in {"src", "href", "xlink:href"} and not (value or "").startswith("#")
        ]


def test_the_report_stands_alone(tmp_path: Path) -> None:
    write_report(compare(arm("lru", 90, 0.5), arm("loop", 40, 0.2)), tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    references = References()
    references.feed(text)
    assert references.found == []
    assert not re.search(r"@import|url\((?!#)", text)
    assert "<svg" in text
    assert "Better than stock LRU" in text
    assert "why &lt;b&gt;" in text, "what the loop says is text, not markup"


def test_the_report_admits_a_failure(tmp_path: Path) -> None:
    write_report(compare(arm("lru", 40, 0.2), arm("loop", 90, 0.5)), tmp_path / "report.html")
    assert "Not better than stock LRU" in (tmp_path / "report.html").read_text()
