"""Which fraction a start takes: situation by situation."""

from __future__ import annotations

from dataclasses import replace

import pytest
from evictune_policies.engine.knobs import STOCK, Document, Memory
from evictune_policies.engine.memory import (
    Attempt,
    Record,
    Start,
    begin,
    confirm,
    damaged,
    leave,
    restart_due,
)

MANIFEST = 0.9
CONFIRMED = Record(Attempt(7, 0.85, "confirmed"))


def document(
    fraction: float | None = 0.85, revision: int = 7, restart: str | None = None
) -> Document:
    return Document(revision, 0.0, STOCK, Memory(fraction, restart))


def test_what_the_document_wants_is_on_record_as_an_attempt() -> None:
    record, start = begin(Record(), document(), True, MANIFEST)
    assert start == Start(0.85)
    assert record == Record(Attempt(7, 0.85, "trying"))


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [(None, "NoDocument"), (document(None), "NotWanted"), (document(MANIFEST), "SameAsManifest")],
)
def test_nothing_to_try(wanted: Document | None, reason: str) -> None:
    record, start = begin(CONFIRMED, wanted, True, MANIFEST)
    assert start == Start(None, reason)
    assert record == Record()


def test_a_start_that_failed_is_dropped_under_that_revision() -> None:
    tried, _ = begin(Record(), document(), True, MANIFEST)
    record, start = begin(tried, document(), True, MANIFEST)
    assert start == Start(None, "Dropped")
    assert record.attempt == Attempt(7, 0.85, "dropped")
    again, start = begin(record, document(), True, MANIFEST)
    assert (again, start) == (record, Start(None, "Dropped"))


def test_a_new_revision_may_try_the_same_value_and_the_old_one_stays_failed() -> None:
    record = Record(failed=((7, 0.85),))
    record, start = begin(record, document(revision=8), True, MANIFEST)
    assert start == Start(0.85)
    record, start = begin(confirm(record), document(revision=7), True, MANIFEST)
    assert start == Start(None, "Dropped")


def test_a_confirmed_value_is_tried_again_at_the_next_start() -> None:
    """It may have become too much: a start with it that fails must not be followed by another."""
    record, start = begin(CONFIRMED, document(), True, MANIFEST)
    assert start == Start(0.85)
    assert record == Record(Attempt(7, 0.85, "trying"))


@pytest.mark.parametrize(
    ("found", "reason"), [(document(0.8, 8), "Expired"), (document(), "Expired"), (None, "Refused")]
)
def test_without_a_document_in_force_what_is_confirmed_stays(
    found: Document | None, reason: str
) -> None:
    record, start = begin(CONFIRMED, found, False, MANIFEST)
    assert start == Start(0.85)
    assert record == Record(Attempt(7, 0.85, "trying"))
    dropped, start = begin(record, found, False, MANIFEST)
    assert start == Start(None, reason)
    assert dropped.attempt == Attempt(7, 0.85, "dropped")


def test_without_a_document_in_force_nothing_new_is_tried() -> None:
    assert begin(Record(), document(), False, MANIFEST) == (Record(), Start(None, "Expired"))
    assert begin(Record(), None, False, MANIFEST) == (Record(), Start(None, "Refused"))


def test_an_expired_document_that_took_the_fraction_back_is_believed() -> None:
    record, start = begin(CONFIRMED, document(None, 8), False, MANIFEST)
    assert (record, start) == (Record(), Start(None, "Expired"))


def test_an_end_on_request_says_nothing_of_the_value() -> None:
    tried, _ = begin(Record(), document(), True, MANIFEST)
    record, start = begin(leave(tried, "d-1"), document(restart="d-1"), True, MANIFEST)
    assert start == Start(0.85)
    assert record == Record(Attempt(7, 0.85, "trying"), restarted=("d-1",))


def test_a_start_has_done_what_the_document_it_read_asks_for() -> None:
    record, _ = begin(Record(), document(restart="d-1"), True, MANIFEST)
    assert restart_due(record, document(restart="d-1")) is None
    assert restart_due(record, document(restart="d-2")) == "d-2"
    assert restart_due(record, document()) is None


def test_a_start_by_an_expired_document_has_not() -> None:
    record, _ = begin(Record(), document(restart="d-1"), False, MANIFEST)
    assert restart_due(record, document(restart="d-1")) == "d-1"


def test_a_word_is_remembered_after_others() -> None:
    record = leave(leave(Record(), "d-1"), "d-2")
    assert restart_due(record, document(restart="d-1")) is None


def test_only_what_is_tried_is_confirmed() -> None:
    assert confirm(Record()) == Record()
    dropped = Record(Attempt(7, 0.85, "dropped"))
    assert confirm(dropped) == dropped
    trying = replace(dropped, attempt=Attempt(7, 0.85, "trying"))
    assert confirm(trying) == CONFIRMED


def test_a_damaged_record_gives_up_what_is_wanted_now_and_nothing_else() -> None:
    record = damaged(document(restart="d-1"))
    after, start = begin(record, document(restart="d-1"), True, MANIFEST)
    assert start == Start(None, "Dropped")
    assert restart_due(after, document(restart="d-1")) is None
    assert begin(after, document(revision=8), True, MANIFEST)[1] == Start(0.85)
    assert damaged(None) == Record()
    assert damaged(document(None)) == Record()
