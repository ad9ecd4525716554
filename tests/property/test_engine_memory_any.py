"""Whatever happens to a pod: no value fails it twice, and it always comes back.

Drawn: documents, starts, ends before and after the confirmation, ends on request, torn records.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from evictune_policies.engine.knobs import MAX_FRACTION, MIN_FRACTION, STOCK, Document, Memory
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
from evictune_policies.engine.state import decode, encode
from hypothesis import given
from hypothesis import strategies as st

MANIFEST = 0.9
fractions = st.sampled_from([MIN_FRACTION, 0.5, 0.85, MANIFEST, MAX_FRACTION])
revisions = st.integers(1, 4)
tokens = st.none() | st.sampled_from(["a", "b", "c"])
documents = st.builds(
    Document,
    revisions,
    st.just(0.0),
    st.just(STOCK),
    st.builds(Memory, st.none() | fractions, tokens),
)
# What is on disk at a start: a document that holds, one past its expiry, one refused, none.
found = st.tuples(documents, st.booleans()) | st.tuples(st.none(), st.booleans())
ends = st.sampled_from(["at once", "confirmed", "on request", "torn"])
lives = st.lists(st.tuples(found, documents, ends), max_size=10)


@dataclass
class Pod:
    """A pod over its starts; it keeps nothing but the record, as a container that is restarted.

    Attributes:
        failed: Revisions and fractions whose engines ended at once.
        carried_out: Words of restarts that were begun.
    """

    record: Record = field(default_factory=Record)
    torn: bool = False
    failed: set[tuple[int, float]] = field(default_factory=set)
    carried_out: list[str] = field(default_factory=list)

    def live(
        self, document: Document | None, holds: bool, end: str, later: Document | None = None
    ) -> Start:
        """One start by what is on disk; while it runs `later` comes into force; then it ends."""
        record = damaged(document) if self.torn else self.record
        self.record, start = begin(record, document, holds, MANIFEST)
        assert decode(encode(self.record)) == self.record
        assert not self.record.leaving
        if start.fraction is not None:
            self._judge(start.fraction)
        assert (start.fraction is None) == bool(start.reason)
        if end == "confirmed":
            self.record = confirm(self.record)
        if end == "on request" and later is not None:
            self._restart(later)
        if end == "at once" and start.fraction is not None and self.record.attempt is not None:
            self.failed.add((self.record.attempt.revision, start.fraction))
        self.torn = end == "torn"
        if self.torn:  # what it knew is lost
            self.failed.clear()
            self.carried_out.clear()
        return start

    def _judge(self, fraction: float) -> None:
        assert MIN_FRACTION <= fraction <= MAX_FRACTION
        assert fraction != MANIFEST
        attempt = self.record.attempt
        assert attempt is not None
        assert attempt == Attempt(attempt.revision, fraction, "trying")
        assert (attempt.revision, fraction) not in self.failed

    def _restart(self, document: Document) -> None:
        token = restart_due(self.record, document)
        if token is not None:
            self.record = leave(self.record, token)
            self.carried_out.append(token)


def lived(lives: list[tuple[tuple[Document | None, bool], Document, str]]) -> Pod:
    """A pod after these starts."""
    pod = Pod()
    for (document, holds), later, end in lives:
        pod.live(document, holds, end, later)
        assert len(set(pod.carried_out)) == len(pod.carried_out)
    return pod


@given(lives)
def test_no_value_fails_twice_and_no_word_is_carried_out_twice(
    lives: list[tuple[tuple[Document | None, bool], Document, str]],
) -> None:
    lived(lives)


@given(lives)
def test_without_a_document_the_next_start_is_always_the_manifests(
    lives: list[tuple[tuple[Document | None, bool], Document, str]],
) -> None:
    assert lived(lives).live(None, True, "at once") == Start(None, "NoDocument")


@given(lives, found)
def test_under_one_document_at_most_the_first_start_fails(
    lives: list[tuple[tuple[Document | None, bool], Document, str]],
    last: tuple[Document | None, bool],
) -> None:
    pod = lived(lives)
    _, *others = (pod.live(*last, "at once") for _ in range(4))
    assert all(start.fraction is None for start in others)


@given(lives, documents)
def test_nothing_new_is_tried_by_a_document_that_does_not_hold(
    lives: list[tuple[tuple[Document | None, bool], Document, str]], document: Document
) -> None:
    pod = lived(lives)
    known = pod.record.attempt
    start = pod.live(document, False, "at once")
    if start.fraction is not None:
        assert known is not None
        assert known == Attempt(known.revision, start.fraction, "confirmed")


@given(lives, documents)
def test_what_is_wanted_and_has_not_failed_is_taken(
    lives: list[tuple[tuple[Document | None, bool], Document, str]], document: Document
) -> None:
    pod = lived(lives)
    unheard_of = replace(document, revision=99)
    fraction = None if document.memory.fraction == MANIFEST else document.memory.fraction
    if not pod.torn:
        assert pod.live(unheard_of, True, "confirmed").fraction == fraction
