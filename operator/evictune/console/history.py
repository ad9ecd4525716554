"""`evictune history`: each change with its verdict, and what was said when nothing was changed.

Made from status.decisions, which keeps the last transitions only; older ones are in the operator's
log and, for an hour, in the policy's Events.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from evictune.api.decision import DecisionRecord, Memory
from evictune.api.knobs import KnobValues
from evictune.api.quantity import format_fraction
from evictune.api.reasons import Reason
from evictune.console.paper import Paper
from evictune.console.subjects import Subject

# Every reason of kind DECISION stands in one of the three; the last are told as they are.
STEPS = (Reason.INTENDED, Reason.WRITTEN, Reason.ACKNOWLEDGED)
VERDICTS = (
    Reason.KEPT,
    Reason.NO_DIFFERENCE,
    Reason.INCONCLUSIVE,
    Reason.REVERTED,
    Reason.ENGINE_FAILED,
    Reason.ABANDONED,
)
NOTES = (
    Reason.RECOMMENDED,
    Reason.RESTORED,
    Reason.WRITE_REFUSED,
    Reason.ENGINE_RESTARTED,
    Reason.CANARY_PASSED,
    Reason.MANIFEST_CHANGED,
)
UNDER_WAY = "UnderWay"
UNTOLD = "Untold"
_COLORS = {
    str(Reason.KEPT): "32",
    str(Reason.REVERTED): "31",
    str(Reason.ENGINE_FAILED): "31",
    str(Reason.ABANDONED): "31",
    UNDER_WAY: "33",
}


@dataclass(frozen=True)
class Entry:
    """A change, or a note such as a recommendation. Times are seconds since the epoch.

    verdict: a reason's word; UnderWay; Untold where its end is no longer among the transitions.
    why: what it was decided for, empty if that is no longer known. told: the verdict in words.
    ended: None while under way. restored_by: the change that takes this one back.
    """

    decision_id: str
    time: float
    change_from: KnobValues | None
    change_to: KnobValues | None
    verdict: str
    why: str = ""
    told: str = ""
    ended: float | None = None
    restored_by: str = ""


def entries_of(memory: Memory) -> tuple[Entry, ...]:
    """Oldest first."""
    notes = [_note(each) for each in memory.decisions if _is_note(each)]
    return tuple(sorted([*_changes(memory), *notes], key=lambda entry: entry.time))


def _is_note(record: DecisionRecord) -> bool:
    return record.reason not in (*STEPS, *VERDICTS, Reason.REGIME_CHANGED)


def _note(record: DecisionRecord) -> Entry:
    return Entry(
        decision_id=record.decision_id,
        time=record.time,
        change_from=record.change_from,
        change_to=record.change_to,
        verdict=str(record.reason),
        told=record.message,
        ended=record.time,
    )


def _changes(memory: Memory) -> list[Entry]:
    """A change that takes another back is told with the other, where that is still known."""
    groups: dict[str, list[DecisionRecord]] = {}
    for record in memory.decisions:
        if record.reason in (*STEPS, *VERDICTS):
            groups.setdefault(record.decision_id, []).append(record)
    changes: list[Entry] = []
    for identity, records in groups.items():
        entry = _change(records, memory)
        before = changes[-1] if changes else None
        if before and _takes_back(identity, records, before, memory):
            changes[-1] = _taken_back(before, entry)
        else:
            changes.append(entry)
    return changes


def _change(records: Sequence[DecisionRecord], memory: Memory) -> Entry:
    first, verdict = records[0], _verdict(records)
    pending = memory.pending
    under_way = pending is not None and pending.decision_id == first.decision_id
    entry = Entry(
        decision_id=first.decision_id,
        time=first.time,
        change_from=first.change_from,
        change_to=first.change_to,
        verdict=UNDER_WAY if under_way else UNTOLD,
        why=first.message if first.reason is Reason.INTENDED else "",
    )
    if verdict is not None:
        return replace(entry, verdict=str(verdict.reason), told=verdict.message, ended=verdict.time)
    if under_way and pending is not None:
        return replace(entry, told=f"{pending.phase}, revision {pending.revision}")
    return entry


def _verdict(records: Iterable[DecisionRecord]) -> DecisionRecord | None:
    return next((each for each in records if each.reason in VERDICTS), None)


def _takes_back(
    identity: str, records: Sequence[DecisionRecord], before: Entry, memory: Memory
) -> bool:
    """No change begins before the last one ended: one without an end of its own is taken back."""
    pending, verdict = memory.pending, _verdict(records)
    if pending is not None and pending.decision_id == identity:
        return pending.revert_of == before.decision_id
    mirrored = (records[0].change_from, records[0].change_to) == (
        before.change_to,
        before.change_from,
    )
    restored = verdict is not None and verdict.reason is Reason.REVERTED
    return mirrored and (restored or before.verdict == UNTOLD)


def _taken_back(before: Entry, restoring: Entry) -> Entry:
    own = before.verdict != UNTOLD
    return replace(
        before,
        verdict=before.verdict if own else str(Reason.REVERTED),
        told=before.told if own else restoring.why,
        ended=restoring.ended,
        restored_by=restoring.decision_id,
    )


def change_text(before: KnobValues | None, after: KnobValues | None) -> str:
    """A change in few characters: what stays the same is told once."""
    if before is None or after is None:
        return ""
    if before.fraction != after.fraction:
        return f"memory fraction {_fraction(before)} → {_fraction(after)}"
    if before.stock or after.stock:
        return f"{_short(before)} → {_short(after)}"
    q_hat = f", qHat {after.q_hat_tokens}"
    if before.q_hat_tokens != after.q_hat_tokens:
        return f"{_short(before)} → {_short(after)}"
    return f"xi {before.xi_tokens} → {after.xi_tokens}{q_hat}"


def _short(values: KnobValues) -> str:
    return "stock LRU" if values.stock else f"xi {values.xi_tokens}, qHat {values.q_hat_tokens}"


def _fraction(values: KnobValues) -> str:
    return "manifest's" if values.fraction is None else format_fraction(values.fraction)


def render(subjects: Sequence[Subject], paper: Paper, *, steps: bool) -> str:
    """The table, newest first. `steps`: each transition as it was recorded.

    Where the names leave no room in one table, each policy has its own.
    """
    rows = _step_rows(subjects, paper) if steps else _entry_rows(subjects, paper)
    heads = ["WHEN", "POLICY", "CHANGE", "STEP" if steps else "VERDICT", "IN WORDS"]
    if len(subjects) > 1 and rows:
        cells = [row for _, row in sorted(rows, key=lambda each: each[0], reverse=True)]
        if paper.room(heads, cells) > 0:
            return "\n".join(paper.table(heads, cells, _COLORS))
        return "\n\n".join(_titled(each, paper, steps) for each in subjects)
    if not rows:
        named = ", ".join(each.key for each in subjects)
        return "\n".join(paper.wrapped(f"No decision was taken yet: {named}", "", "  "))
    heads.remove("POLICY")
    cells = [[row[0], *row[2:]] for _, row in sorted(rows, key=lambda each: each[0], reverse=True)]
    return "\n".join(paper.table(heads, cells, _COLORS))


def _titled(subject: Subject, paper: Paper, steps: bool) -> str:
    return f"{paper.paint(subject.key, '1')}\n{render([subject], paper, steps=steps)}"


_Row = tuple[tuple[float, int], list[str]]


def _entry_rows(subjects: Sequence[Subject], paper: Paper) -> list[_Row]:
    return [
        (
            (entry.time, place),
            [
                paper.ago(entry.time),
                subject.key,
                change_text(entry.change_from, entry.change_to),
                entry.verdict,
                _words(entry),
            ],
        )
        for subject in subjects
        for place, entry in enumerate(entries_of(subject.memory))
    ]


def _words(entry: Entry) -> str:
    if entry.verdict == UNDER_WAY:
        return f"{entry.told}. {entry.why}".strip()
    if entry.verdict == UNTOLD:
        return entry.why or "its end is no longer among the transitions kept"
    if entry.restored_by and entry.ended is None:
        return f"{entry.told} Restoring is under way."
    return entry.told


def _step_rows(subjects: Sequence[Subject], paper: Paper) -> list[_Row]:
    return [
        (
            (record.time, place),
            [
                paper.ago(record.time),
                subject.key,
                change_text(record.change_from, record.change_to),
                str(record.reason),
                record.message,
            ],
        )
        for subject in subjects
        for place, record in enumerate(subject.memory.decisions)
    ]
