"""Log lines: one JSON object a line, or text, with the transition's fields."""

from __future__ import annotations

import json
import logging
import sys

from evictune.logs import JSONFormatter, TextFormatter, about

FIELDS = {"policy": "chat", "reason": "Kept", "to": {"xi_tokens": 512}, "decision_id": ""}


def record(**extra: object) -> logging.LogRecord:
    made = logging.LogRecord("evictune.tick", logging.INFO, "f", 1, "%s: kept", ("Kept",), None)
    made.created = 1_795_953_600.4
    made.__dict__.update(extra)
    return made


def test_json_has_the_message_and_the_fields() -> None:
    line = JSONFormatter().format(record(fields=FIELDS))
    assert "\n" not in line
    assert json.loads(line) == {
        "time": "2026-11-29T12:00:00Z",
        "level": "info",
        "logger": "evictune.tick",
        "message": "Kept: kept",
        **FIELDS,
    }


def test_json_holds_a_traceback_in_one_line() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        broken = record(exc_info=sys.exc_info())
    line = JSONFormatter().format(broken)
    assert "\n" not in line
    assert "ValueError: two" in json.loads(line)["traceback"]


def test_a_line_about_a_policy_is_found_by_its_name() -> None:
    line = JSONFormatter().format(record(**about("serving", "chat", reason="Kept")))
    assert '"namespace": "serving", "policy": "chat", "reason": "Kept"' in line


def test_text_shows_the_fields_that_have_a_value() -> None:
    line = TextFormatter().format(record(fields=FIELDS))
    assert line.endswith('Kept: kept  policy=chat reason=Kept to={"xi_tokens":512}')


def test_a_field_of_text_is_one_word() -> None:
    line = TextFormatter().format(record(fields={"why": 'a "b" c', "policy": "chat"}))
    assert line.endswith(r'  why="a \"b\" c" policy=chat')
