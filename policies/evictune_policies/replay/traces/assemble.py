"""From the records of a trace file to a `Trace`: the repairs that all formats share.

A reader adds its records as they come; `assemble` puts them in order, drops what is there twice,
numbers the blocks and links the turns. What a rule changed is counted under the rule's name.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evictune_policies.algorithms.pool import NONE
from evictune_policies.replay.traces.files import MAX_INTEGER, printable, refuse
from evictune_policies.replay.traces.intern import (
    Int32,
    Int64,
    UInt64,
    chained,
    numbers,
    worth,
)
from evictune_policies.replay.traces.trace import Trace

MAX_SECONDS = MAX_INTEGER / 2 / 1e6
"""Of a time, either side of 0, and of a think time: 142 years. A request log has microseconds."""

REPAIRS = {
    "unsorted": "records that came later than their time says: put in order of arrival",
    "duplicate": "records equal in all fields to the one before, in order of arrival: dropped",
    "truncated": "the file ends within a record: that record dropped",
    "empty prompt": "records without prompt tokens: dropped",
    "no output": "records whose output length is missing or negative: taken as 0",
    "surplus ids": "records with more block ids than their length has blocks: those cut off",
    "missing ids": "records with fewer block ids than whole blocks: the rest can never be hit",
    "contradicting ids": "block ids that stand for different tokens, or come after different ones: "
    "told apart",
    "unknown turn": "turns whose previous turn is not in the trace: taken as first turns",
    "lost events": "events that the log says it dropped",
    "lost chain": "requests whose blocks are told by way of a request that is lost: never hit",
    "reset": "times that the engine's cache was emptied, which a replay does not do",
    "unfinished": "requests that the log does not see to their end: their length so far is taken",
    "unknown request": "events of a request whose admission is not in the log: passed over",
    "estimated think time": "turns after one whose end is not recorded: its median time is taken",
}


@dataclass
class Records:
    """Records in the order of their source, one entry each.

    ids_chained: an id is meant to stand for a block and all before it (else for the block alone).
    identified: each record is another request, even if it equals the one before.
    """

    path: Path
    block_tokens: int
    ids_chained: bool = True
    identified: bool = False
    repairs: Counter[str] = field(default_factory=Counter)
    arrival: list[float] = field(default_factory=list)
    prompt_tokens: list[int] = field(default_factory=list)
    output_tokens: list[int] = field(default_factory=list)
    known_tokens: list[int] = field(default_factory=list)
    ids: list[UInt64] = field(default_factory=list)
    previous: list[int] = field(default_factory=list)
    think: list[float] = field(default_factory=list)
    tenant: list[int] = field(default_factory=list)
    tenants: dict[str, int] = field(default_factory=dict)

    def add(
        self,
        arrival: float,
        prompt_tokens: int,
        output_tokens: int | None,
        ids: Sequence[int] | UInt64,
        *,
        ids_of_output: bool = False,
        known_tokens: int | None = None,
        previous: int = NONE,
        think: float = math.nan,
        tenant: str = "all",
        line: int | None = None,
    ) -> int:
        """Add a record; returns its index, or NONE if a rule drops it.

        arrival: in seconds. ids: of its blocks in order, of the prompt or, ids_of_output, of all.
        known_tokens: how many tokens these cover, if the source says so.
        Raises TraceError for a time that is none, or an id beyond 64 bits.
        """
        self._check_time("arrival", arrival, line)
        if previous != NONE and not math.isnan(think):
            self._check_time("think time", think, line)
        if prompt_tokens <= 0:
            self.repairs["empty prompt"] += 1
            return NONE
        if output_tokens is None or output_tokens < 0:
            self.repairs["no output"] += 1
            output_tokens = 0
        covered = prompt_tokens + (output_tokens if ids_of_output else 0)
        if known_tokens is not None:
            covered = min(covered, max(0, known_tokens))
        blocks = -(-covered // self.block_tokens)
        all_told = known_tokens is not None or not ids_of_output
        if len(ids) > blocks:
            self.repairs["surplus ids"] += 1
            ids = ids[:blocks]
        elif all_told and len(ids) < covered // self.block_tokens:
            self.repairs["missing ids"] += 1
        self.arrival.append(arrival)
        self.prompt_tokens.append(prompt_tokens)
        self.output_tokens.append(output_tokens)
        self.known_tokens.append(min(covered, len(ids) * self.block_tokens))
        self.ids.append(sixty_four_bits(self.path, ids, line))
        self.previous.append(previous)
        self.think.append(think if previous != NONE else math.nan)
        self.tenant.append(self.tenants.setdefault(tenant, len(self.tenants)))
        return len(self.arrival) - 1

    def _check_time(self, field: str, seconds: float, line: int | None) -> None:
        if not abs(seconds) <= MAX_SECONDS:  # also what is not a number
            raise refuse(
                self.path,
                f"is not a time in seconds of at most {MAX_SECONDS:,.0f}",
                "correct it or take it out",
                line=line,
                field=field,
                value=seconds,
            )


def sixty_four_bits(path: Path, ids: Sequence[int] | UInt64, line: int | None = None) -> UInt64:
    """Block ids as an array. Raises TraceError for one beyond 64 bits."""
    try:
        return np.asarray(ids, np.uint64)
    except OverflowError:
        value = next(one for one in ids if not 0 <= one < 1 << 64)
    raise refuse(
        path,
        "is not an unsigned number of 64 bits",
        "number the blocks from 0, or hash them to 64 bits",
        line=line,
        field="block id",
        value=value,
    )


def assemble(
    records: Records,
    *,
    name: str,
    chronological: bool = False,
    infer_turns: bool = False,
    finished: Sequence[float] | None = None,
) -> Trace:
    """The trace that these records make.

    chronological: the source ought to be in order of arrival. infer_turns: it does not say which
    request is a conversation's next turn; that is taken from the blocks (`turns`).
    Raises TraceError if no record is left.
    """
    if not records.arrival:
        raise refuse(records.path, "holds no requests", "give a trace with at least one")
    order = _order(records, chronological)
    arrival = np.array(records.arrival)[order]
    known = np.array(records.known_tokens, np.int64)[order]
    starts, contents, distinct = _blocks(records, order, known)
    parent, depth = _links(starts, contents, distinct)
    if infer_turns:
        previous = turns(starts, contents, known // records.block_tokens, distinct)
        ended = np.full(len(order), np.nan) if finished is None else np.array(finished)[order]
        think = arrival - ended[previous]
        think = np.where(think < 0, np.nan, think)  # it did not wait for that answer
    else:
        previous = _told_turns(records, order)
        think = np.array(records.think)[order]
    final = np.ones(len(order), np.bool_)
    final[previous[previous != NONE]] = False
    return Trace(
        name=printable(name),
        block_tokens=records.block_tokens,
        arrival=arrival - arrival[0],
        prompt_tokens=np.array(records.prompt_tokens, np.int64)[order],
        output_tokens=np.array(records.output_tokens, np.int64)[order],
        starts=starts,
        contents=contents,
        known_tokens=known,
        parent=parent,
        depth=depth,
        previous=previous,
        think=np.where(previous == NONE, np.nan, think),
        tenant=np.array(records.tenant, np.int32)[order],
        tenants=tuple(map(printable, records.tenants)),
        final=final,
        repairs={rule: count for rule, count in records.repairs.items() if count},
    )


def _order(records: Records, chronological: bool) -> Int64:
    """The records' indices in order of arrival, without those that are there twice."""
    arrival = np.array(records.arrival)
    if chronological:
        records.repairs["unsorted"] += int(np.sum(arrival < np.maximum.accumulate(arrival)))
    order = np.argsort(arrival, kind="stable")  # equal times stay in the order of the source
    if records.identified:
        return order
    order = order[~_repeated(records, order)]
    records.repairs["duplicate"] += len(arrival) - len(order)
    return order


def _repeated(records: Records, order: Int64) -> NDArray[np.bool_]:
    """Per place in the order: whether the record equals the one before it in every field."""
    repeated = np.zeros(len(order), np.bool_)
    fields = [
        np.array(column)[order]
        for column in (
            records.arrival,
            records.prompt_tokens,
            records.output_tokens,
            records.known_tokens,
            records.tenant,
        )
    ]
    equal = np.all([column[1:] == column[:-1] for column in fields], axis=0)
    for place in np.flatnonzero(equal) + 1:
        before, this = records.ids[order[place - 1]], records.ids[order[place]]
        repeated[place] = np.array_equal(before, this)
    return repeated


def _blocks(records: Records, order: Int64, known: Int64) -> tuple[Int64, Int32, int]:
    """Where each request's contents begin, the contents, and how many different ones there are."""
    starts = np.zeros(len(order) + 1, np.int64)
    np.cumsum(-(-known // records.block_tokens), out=starts[1:])
    ids = np.concatenate([records.ids[source] for source in order])
    contents, distinct = numbers(chained(starts, ids, known % records.block_tokens))
    if records.ids_chained:
        records.repairs["contradicting ids"] += distinct - numbers(ids)[1]
    return starts, contents, distinct


def _links(starts: Int64, contents: Int32, distinct: int) -> tuple[Int32, Int32]:
    """Each content's parent and depth. It has the same ones wherever it appears."""
    counts = np.diff(starts)
    index = np.arange(len(contents)) - np.repeat(starts[:-1], counts)
    before = np.roll(contents, 1)
    before[index == 0] = NONE
    parent, depth = np.empty(distinct, np.int32), np.empty(distinct, np.int32)
    parent[contents] = before
    depth[contents] = index
    return parent, depth


def _told_turns(records: Records, order: Int64) -> Int32:
    """Per place in the order that of the turn before; NONE where that is not an earlier one."""
    told = np.array(records.previous, np.int32)
    place = np.full(len(told) + 1, NONE, np.int32)  # [NONE] is NONE
    place[order] = np.arange(len(order), dtype=np.int32)
    told = told[order]
    previous = np.where(place[told] < np.arange(len(order)), place[told], NONE).astype(np.int32)
    records.repairs["unknown turn"] += int(np.sum((previous == NONE) & (told != NONE)))
    return previous


def turns(starts: Int64, contents: Int32, whole: Int64, distinct: int) -> Int32:
    """Per request the one whose turn came before, as far as blocks tell; else NONE.

    It is the one with the most whole blocks that all begin this request too, the latest of equals,
    if there are two at least: the first block is often a system prompt's, and shared by strangers.
    """
    previous = np.full(len(whole), NONE, np.int32)
    last_ended = np.full(distinct, NONE, np.int32)
    worth(_follow, len(contents))(starts, contents, whole, last_ended, previous)
    return previous


def _follow(
    starts: Int64, contents: Int32, whole: Int64, last_ended: Int32, previous: Int32
) -> None:
    """last_ended: per content, the latest request whose last whole content it is."""
    for request in range(len(whole)):
        first = starts[request]
        for index in range(whole[request] - 1, 0, -1):
            before = last_ended[contents[first + index]]
            if before != NONE:
                previous[request] = before
                break
        if whole[request] > 1:
            last_ended[contents[first + whole[request] - 1]] = request
