"""The memory fraction of a start: by the knob document, and by what became of earlier ones.

Pure: no file, no clock, no vLLM. A value is *tried* before it is trusted: the attempt is on record
before the engine starts with it, and confirmed once the engine has served for a while. A start that
finds an attempt neither confirmed nor ended on request knows that it failed: it drops the value,
for good under that revision, and takes the manifest's. So no value starts an engine twice in vain.
"""

from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from evictune_policies.engine.knobs import Document

# More than anyone restarts one pod, and still a small file.
_REMEMBERED = 1000

State = Literal["trying", "confirmed", "dropped"]
_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class Attempt:
    """A fraction other than the manifest's, and what became of it in this pod."""

    revision: int
    fraction: float
    state: State


@dataclass(frozen=True, slots=True)
class Record:
    """What outlives the container.

    Attributes:
        attempt: The one in force, or the one that was dropped last; None: the manifest's value.
        failed: Revisions and fractions that are not tried again, oldest first.
        restarted: Words of the document that are carried out, oldest first.
        leaving: The engine is being ended on request: its end says nothing of the value.
    """

    attempt: Attempt | None = None
    failed: tuple[tuple[int, float], ...] = ()
    restarted: tuple[str, ...] = ()
    leaving: bool = False


@dataclass(frozen=True, slots=True)
class Start:
    """With which fraction to start: None is the manifest's own, with the reason in one word."""

    fraction: float | None
    reason: str = ""


def begin(
    record: Record, document: Document | None, holds: bool, manifest: float
) -> tuple[Record, Start]:
    """Judge what a start takes, and what is on record before it does.

    Args:
        record: As the last start left it.
        document: The valid document on disk, also when it is past its expiry.
        holds: False when it is past its expiry, or what is on disk is refused.
        manifest: The fraction of the command line.
    """
    before = _settled(record)
    if holds and document is not None:
        token = document.memory.restart
        if token is not None and token not in before.restarted:
            # A start that has read the document has done what a restart is asked for.
            before = replace(before, restarted=_with(before.restarted, token))
        return _wanted(before, document.revision, document.memory.fraction, manifest)
    if holds:
        return replace(before, attempt=None), Start(None, "NoDocument")
    return _unheld(before, document)


def damaged(document: Document | None) -> Record:
    """The record to go on from when none can be read: what is wanted now may have failed before."""
    if document is None:
        return Record()
    memory = document.memory
    restarted = () if memory.restart is None else (memory.restart,)
    if memory.fraction is None:
        return Record(restarted=restarted)
    dropped = Attempt(document.revision, memory.fraction, "dropped")
    return Record(dropped, ((document.revision, memory.fraction),), restarted)


def confirm(record: Record) -> Record:
    """The engine has served for a while."""
    if record.attempt is None or record.attempt.state != "trying":
        return record
    return replace(record, attempt=replace(record.attempt, state="confirmed"))


def restart_due(record: Record, document: Document) -> str | None:
    """The word of a document in force that asks for a restart, unless it is carried out."""
    token = document.memory.restart
    return None if token in record.restarted else token


def leave(record: Record, token: str) -> Record:
    """The restart that the word asks for begins; from now on it is carried out."""
    return replace(record, restarted=_with(record.restarted, token), leaving=True)


def _settled(record: Record) -> Record:
    """What the end of the last engine says: an attempt that was not confirmed has failed."""
    attempt = record.attempt
    if attempt is not None and attempt.state == "trying":
        if record.leaving:
            return replace(record, attempt=None, leaving=False)
        return _dropped(record, attempt)
    return replace(record, leaving=False)


def _dropped(record: Record, attempt: Attempt) -> Record:
    failed = _with(record.failed, (attempt.revision, attempt.fraction))
    return Record(replace(attempt, state="dropped"), failed, record.restarted)


def _wanted(
    record: Record, revision: int, fraction: float | None, manifest: float
) -> tuple[Record, Start]:
    """What a document in force asks for, unless it has failed."""
    if fraction is None:
        return replace(record, attempt=None), Start(None, "NotWanted")
    if fraction == manifest:
        return replace(record, attempt=None), Start(None, "SameAsManifest")
    if (revision, fraction) in record.failed:
        return replace(record, attempt=Attempt(revision, fraction, "dropped")), Start(
            None, "Dropped"
        )
    return _trying(record, Attempt(revision, fraction, "trying"))


def _unheld(record: Record, document: Document | None) -> tuple[Record, Start]:
    """Nobody says what is wanted now: what has proven itself stays, and nothing new is tried.

    Unlike an eviction order, which costs nothing to change back and forth, a fraction that came
    and went with the operator would change what the pod can hold at every unrelated restart.
    """
    reason = "Refused" if document is None else "Expired"
    attempt = record.attempt
    if attempt is None or attempt.state == "dropped":
        return record, Start(None, reason)
    if document is not None and document.memory.fraction is None:
        return replace(record, attempt=None), Start(None, reason)
    return _trying(record, replace(attempt, state="trying"))


def _trying(record: Record, attempt: Attempt) -> tuple[Record, Start]:
    return replace(record, attempt=attempt), Start(attempt.fraction)


def _with(items: tuple[_Item, ...], item: _Item) -> tuple[_Item, ...]:
    return (*items, item)[-_REMEMBERED:]
