"""The native format: what a log says, and a log with holes."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from evictune_policies.replay.traces import native
from evictune_policies.replay.traces.files import TraceError
from evictune_policies.replay.traces.request_log import (
    Abort,
    Admit,
    Allocate,
    Chunk,
    Drop,
    Free,
    Header,
    KnobChange,
    Log,
    Preempt,
    Reset,
    Writer,
)
from evictune_policies.replay.traces.trace import Trace

from tests.support.traces import chain, check_trace, write_lines

HEADER = {"schema": "evictune.io/trace/v1", "block_tokens": 4}


def hashes(*values: int) -> str:
    return base64.b64encode(b"".join(value.to_bytes(8, "big") for value in values)).decode()


def admit(request: int, tokens: int, *values: int, time: int = 0, **more: Any) -> list[Any]:
    defaults = {"chain_of": -1, "same_blocks": 0, "tenant": "all", "previous": -1, "think": None}
    return ["admit", time, request, tokens, hashes(*values), *(defaults | more).values()]


def free(request: int, output: int, known: int, *values: int, time: int | None = None) -> list[Any]:
    return ["free", time, request, output, known, hashes(*values)]


def read(directory: Path, *events: Any, end: str = "\n", **header: Any) -> Trace:
    path = write_lines(directory / "log.jsonl", [HEADER | header, *events], end=end)
    trace = native.read(path)
    check_trace(trace)
    return trace


def test_a_chain_is_that_of_another_and_its_own(tmp_path: Path) -> None:
    trace = read(
        tmp_path,
        admit(0, 8, 11, 12),
        free(0, 5, 13, 13, 14),
        admit(1, 17, 15, time=2_500_000, chain_of=0, same_blocks=3),
        free(1, 1, 16),
        name="night shift",
    )
    assert [chain(trace, request) for request in range(2)] == [[0, 1, 2, 3], [0, 1, 2, 4]]
    assert trace.known_tokens.tolist() == [13, 16]
    assert trace.output_tokens.tolist() == [5, 1]
    assert trace.arrival.tolist() == [0, 2.5]
    assert trace.name == "night shift"
    assert trace.repairs == {}


def test_turns_and_think_times_that_are_told(tmp_path: Path) -> None:
    trace = read(
        tmp_path,
        admit(4, 8, 1, 2),
        free(4, 1, 8),
        admit(7, 8, 3, 4, time=9, previous=4, think=3),
        free(7, 1, 8),
        turns=True,
    )
    assert trace.previous.tolist() == [-1, 0]
    assert trace.think[1] == pytest.approx(3e-6)


def test_turns_that_are_not_told_are_inferred(tmp_path: Path) -> None:
    trace = read(
        tmp_path,
        admit(0, 8, 1, 2),
        free(0, 4, 12, 3, time=2_000_000),
        admit(1, 13, 1, 2, 3, time=5_000_000),
        free(1, 1, 12, time=6_000_000),
        admit(2, 13, 1, 2, 3, time=5_500_000),
        free(2, 1, 12),
        admit(3, 12, 1, 2, 3, time=9_000_000),
    )
    assert trace.previous.tolist() == [-1, 0, 1, 2]
    assert trace.think[1] == 3
    assert np.isnan(trace.think[2])  # it came before the answer
    assert np.isnan(trace.think[3])  # the end of the turn before is not known


def test_all_events(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl.gz"
    events = [
        KnobChange(0, 3, "t-lru", 8192, 200),
        Admit(10, 0, 9, b"\0" * 16, tenant="a", think=None),
        Allocate(11, 0, 0, 3, 97),
        Chunk(11, 0, 0, 8),
        Preempt(12, 0),
        Allocate(13, 0, 8, 1, 99),
        Chunk(13, 0, 8, 1),
        Drop(14, 5),
        Abort(15, 0),
        Free(15, 0, 1, 8),
        Reset(20),
    ]
    header = Header(block_tokens=4, pool_blocks=100, engine="vllm 0.32.0", began="2026-01-01")
    with Writer(path, header) as writer:
        for event in events:
            writer.write(event)
    log = Log(path)
    assert (log.header.pool_blocks, log.header.schema) == (100, "evictune.io/trace/v1")
    assert list(log) == [(line + 2, event) for line, event in enumerate(events)]
    trace = native.read(path)
    assert trace.tenants == ("a",)
    assert trace.repairs == {"lost events": 5, "reset": 1, "contradicting ids": 1}


def test_the_same_log_is_the_same_bytes(tmp_path: Path) -> None:
    written = []
    for name in ("a.gz", "b.gz"):
        with Writer(tmp_path / name, Header(block_tokens=4)) as writer:
            writer.write(Reset(1))
        written.append((tmp_path / name).read_bytes())
    assert written[0] == written[1]


def test_a_request_without_end_is_as_long_as_it_got(tmp_path: Path) -> None:
    trace = read(
        tmp_path,
        admit(0, 8, 1, 2),
        ["chunk", 1, 0, 0, 8],
        ["chunk", 2, 0, 8, 1],
        ["chunk", 3, 0, 9, 1],
        ["preempt", 4, 0],
        ["chunk", 5, 0, 0, 8],
        admit(1, 8, 1, 2),
        ["abort", 9, 1],
    )
    assert trace.output_tokens.tolist() == [2, 0]
    assert trace.repairs == {"unfinished": 1}


def test_events_of_requests_that_the_log_does_not_know(tmp_path: Path) -> None:
    trace = read(tmp_path, free(9, 1, 8), ["chunk", 1, 9, 0, 8], admit(0, 4, 1), free(0, 1, 4))
    assert trace.requests == 1
    assert trace.repairs == {"unknown request": 2}


def test_a_chain_by_way_of_a_lost_request_is_lost(tmp_path: Path) -> None:
    trace = read(
        tmp_path,
        ["drop", 0, 40],
        admit(1, 12, 3, chain_of=0, same_blocks=2),
        free(1, 4, 16, 4),
        admit(2, 12, 3, chain_of=1, same_blocks=2),
        free(2, 4, 16, 4),
        admit(3, 8, 1, 2),
        admit(4, 20, 5, chain_of=3, same_blocks=4),
        free(3, 4, 8),
        free(4, 4, 8),
    )
    assert trace.known_tokens.tolist() == [0, 0, 8, 0]
    assert trace.repairs == {"lost events": 40, "lost chain": 3}


def test_a_turn_after_a_lost_one_is_a_first_one(tmp_path: Path) -> None:
    trace = read(tmp_path, admit(1, 4, 1, previous=0, think=5), free(1, 1, 4), turns=True)
    assert trace.previous.tolist() == [-1]
    assert np.isnan(trace.think[0])
    assert trace.repairs == {"unknown turn": 1}


def test_events_that_are_there_twice_count_once(tmp_path: Path) -> None:
    events = [admit(0, 4, 1), free(0, 4, 8, 2)]
    trace = read(tmp_path, *events, *events)
    assert chain(trace, 0) == [0, 1]
    assert trace.repairs == {"duplicate": 2}


def test_more_known_tokens_than_hashes(tmp_path: Path) -> None:
    trace = read(tmp_path, admit(0, 8, 1), free(0, 4, 12, 2))
    assert trace.known_tokens.tolist() == [8]
    assert trace.repairs == {"missing ids": 1}


def test_hashes_of_other_widths(tmp_path: Path) -> None:
    wide = base64.b64encode(bytes(range(64))).decode()
    trace = read(tmp_path, ["admit", 0, 0, 8, wide], ["free", 1, 0, 1, 8], hash_bytes=32)
    assert chain(trace, 0) == [0, 1]


def test_a_log_that_is_cut_off(tmp_path: Path) -> None:
    trace = read(tmp_path, admit(0, 4, 1), free(0, 1, 4), '["admit", 1, 2, 3', end="")
    assert trace.repairs == {"truncated": 1}


def test_fields_that_a_later_writer_adds_are_passed_over(tmp_path: Path) -> None:
    trace = read(tmp_path, [*admit(0, 4, 1), "more"], [*free(0, 1, 4), 5], more=1)
    assert trace.requests == 1


@pytest.mark.parametrize(
    ("header", "event", "says"),
    [
        ({"schema": "evictune.io/trace/v2"}, [], "line 1: schema: 'evictune.io/trace/v2' is not"),
        ({"block_tokens": 0}, [], "line 1: block_tokens: 0 is not a size"),
        ({"block_tokens": "4"}, [], r"line 1: block_tokens: '4' \(expected `int`, got `str`\)"),
        ({"hash_bytes": 4}, [], "line 1: hash_bytes: 4 is below 8"),
        ({}, ["unheard", 1], r"line 2: \[0\]: 'unheard' \(invalid value"),
        ({}, ["chunk", 1], "line 2: expected `array` of at least length 5, got 2"),
        ({}, ["chunk", "1", 1, 1, 1], r"line 2: \[1\]: '1' \(expected `int`, got `str`\)"),
        ({}, ["admit", 1, 1, 8, "AAAA"], "line 2: hashes: 3 bytes are no whole number of hashes"),
        ({}, ["admit", 1, 1, 8, "?"], r"line 2: \[4\]: '\?' \(invalid base64"),
        ({}, {"admit": 1}, "line 2: expected `array`, got `object`"),
    ],
)
def test_what_is_refused(tmp_path: Path, header: Any, event: Any, says: str) -> None:
    with pytest.raises(TraceError, match=says) as refusal:
        read(tmp_path, event, admit(3, 4, 1), **header)
    assert "\n" not in str(refusal.value)


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="No such file or directory; give another file"):
        Writer(tmp_path / "nowhere" / "log", Header(block_tokens=4))


def test_the_example_in_the_documentation(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "trace-format.md").read_text()
    lines = [line.strip() for line in page.splitlines() if line.startswith(" " * 8)]
    trace = native.read(write_lines(tmp_path / "log", lines))
    check_trace(trace)
    assert trace.known_tokens.tolist() == [48, 48]
    assert chain(trace, 0) == chain(trace, 1) == [0, 1, 2]
    assert trace.think[1] == pytest.approx(5.2 - 0.90231)
    assert trace.repairs == {"unfinished": 1}
