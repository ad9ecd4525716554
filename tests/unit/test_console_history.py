"""`evictune history`: transitions told as changes with their verdicts."""

from __future__ import annotations

from typing import Any

import pytest
from evictune.api.knobs import STOCK_LRU, KnobValues
from evictune.api.reasons import Kind, Reason
from evictune.api.status import memory_from_status
from evictune.console.history import (
    NOTES,
    STEPS,
    VERDICTS,
    Entry,
    change_text,
    entries_of,
    render,
)
from evictune.console.paper import Paper
from evictune.console.subjects import Subject

from tests.support.console_scene import record

NOW = 1_795_953_600.0  # 2026-11-29T12:00:00Z
UP = (None, 512)
DOWN = (512, None)


def at(minute: int) -> str:
    return f"2026-11-29T11:{minute:02}:00Z"


def change(identity: str, minute: int, xi: tuple[int | None, int | None]) -> list[dict[str, Any]]:
    """A change up to its acknowledgement."""
    return [
        record(identity, at(minute), "Intended", f"why {identity}", xi),
        record(identity, at(minute), "Written", "written", xi),
        record(identity, at(minute + 1), "Acknowledged", "acknowledged", xi),
    ]


def pending(identity: str, revert_of: str = "", phase: str = "Settling") -> dict[str, Any]:
    told = {"decisionID": identity, "revision": 4, "phase": phase, "reason": "ReuseLost"}
    return {**told, "startTime": at(0), "from": {}, "to": {}, "revertOf": revert_of}


def entries(*decisions: dict[str, Any], **status: Any) -> tuple[Entry, ...]:
    return entries_of(memory_from_status({"decisions": list(decisions), **status}))


def test_a_change_that_was_kept_has_its_verdict_and_its_end() -> None:
    kept = record("a", at(20), "Kept", "helped", UP)
    (entry,) = entries(*change("a", 0, UP), kept)
    assert (entry.verdict, entry.why, entry.told) == ("Kept", "why a", "helped")
    assert (entry.change_from, entry.change_to) == (STOCK_LRU, KnobValues(512, 60))
    assert (entry.time, entry.ended) == (NOW - 3600, NOW - 2400)


def test_a_change_and_its_way_back_are_one_entry() -> None:
    back = change("b", 20, DOWN)
    done = record("b", at(21), "Reverted", "stock LRU is in force again", DOWN)
    (entry,) = entries(*change("a", 0, UP), *back, done)
    assert (entry.decision_id, entry.verdict, entry.told) == ("a", "Reverted", "why b")
    assert (entry.restored_by, entry.ended) == ("b", NOW - 2340)


def test_the_way_back_under_way_belongs_to_what_it_takes_back() -> None:
    (entry,) = entries(
        *change("a", 0, UP), *change("b", 20, DOWN)[:2], pending=pending("b", revert_of="a")
    )
    assert (entry.verdict, entry.restored_by, entry.ended) == ("Reverted", "b", None)


def test_a_change_given_up_and_taken_back_stays_abandoned() -> None:
    given_up = record("a", at(5), "Abandoned", "not in force within 5m", UP)
    done = record("b", at(7), "Reverted", "again", DOWN)
    (entry,) = entries(*change("a", 0, UP), given_up, *change("b", 5, DOWN), done)
    assert (entry.verdict, entry.told) == ("Abandoned", "not in force within 5m")
    assert (entry.restored_by, entry.ended) == ("b", NOW - 53 * 60)


def test_a_way_back_whose_way_there_is_forgotten_stands_alone() -> None:
    done = record("b", at(21), "Reverted", "stock LRU is in force again", DOWN)
    (entry,) = entries(*change("b", 20, DOWN), done)
    assert (entry.decision_id, entry.verdict) == ("b", "Reverted")


def test_a_later_change_the_other_way_is_a_change_of_its_own() -> None:
    kept = record("a", at(10), "Kept", "helped", UP)
    later = record("b", at(30), "Kept", "helped too", DOWN)
    assert [
        each.verdict for each in entries(*change("a", 0, UP), kept, *change("b", 20, DOWN), later)
    ] == [
        "Kept",
        "Kept",
    ]


def test_what_is_under_way_says_how_far() -> None:
    (entry,) = entries(*change("a", 0, UP), pending=pending("a"))
    assert (entry.verdict, entry.told, entry.ended) == ("UnderWay", "Settling, revision 4", None)


def test_an_end_that_was_not_kept_is_untold() -> None:
    (entry,) = entries(*change("a", 0, UP))
    assert entry.verdict == "Untold"


def test_every_reason_of_a_decision_has_its_place() -> None:
    placed = {*STEPS, *VERDICTS, *NOTES, Reason.REGIME_CHANGED}
    assert placed == {each for each in Reason if each.kind is Kind.DECISION}


def test_notes_are_told_and_regimes_are_not() -> None:
    regime = {"decisionID": "r", "time": at(1), "reason": "RegimeChanged", "message": "Healthy: x"}
    note = record("n", at(2), "Recommended", "xi 512 would be set", UP)
    (entry,) = entries(regime, note)
    assert (entry.verdict, entry.told) == ("Recommended", "xi 512 would be set")


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        (STOCK_LRU, KnobValues(512, 60), "stock LRU → xi 512, qHat 60"),
        (KnobValues(512, 60), STOCK_LRU, "xi 512, qHat 60 → stock LRU"),
        (KnobValues(512, 60), KnobValues(1024, 60), "xi 512 → 1024, qHat 60"),
        (KnobValues(512, 60), KnobValues(512, 90), "xi 512, qHat 60 → xi 512, qHat 90"),
        (None, KnobValues(512, 60), ""),
    ],
)
def test_a_change_in_few_characters(
    before: KnobValues | None, after: KnobValues, text: str
) -> None:
    assert change_text(before, after) == text


def subject(name: str, *decisions: dict[str, Any]) -> Subject:
    metadata = {"namespace": "serving", "name": name}
    return Subject({"metadata": metadata, "status": {"decisions": list(decisions)}}, None)


@pytest.mark.parametrize("width", [60, 80, 100, 120])
@pytest.mark.parametrize("steps", [False, True])
def test_the_table_fits(width: int, steps: bool) -> None:
    long = record(
        "a", at(20), "Kept", "T-LRU with xi 512, qHat 60 helped: " + "p99 was 1s " * 9, UP
    )
    subjects = [subject("chat", *change("a", 0, UP), long), subject("rag", *change("b", 3, DOWN))]
    text = render(subjects, Paper(NOW, colored=False, width=width), steps=steps)
    assert max(map(len, text.splitlines())) <= width
    assert "serving/chat" in text
    assert "stock LRU → xi 512, qHat 60" in text


def test_the_newest_comes_first_over_all_policies() -> None:
    subjects = [
        subject("old", record("a", at(1), "Kept", "first", UP)),
        subject("new", record("b", at(2), "Kept", "second", UP)),
    ]
    text = render(subjects, Paper(NOW, colored=False), steps=False)
    assert text.index("serving/new") < text.index("serving/old")


def test_one_policy_needs_no_column_of_names() -> None:
    one = subject("chat", record("a", at(1), "Kept", "first", UP))
    text = render([one], Paper(NOW, colored=False), steps=False)
    assert "POLICY" not in text


def test_nothing_decided_yet_is_said() -> None:
    text = render([subject("chat")], Paper(NOW, colored=False), steps=False)
    assert text == "No decision was taken yet: serving/chat"
