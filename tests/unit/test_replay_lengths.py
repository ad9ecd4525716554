"""Traces of lengths alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from evictune_policies.replay.traces import lengths
from evictune_policies.replay.traces.assumptions import Assumptions
from evictune_policies.replay.traces.files import TraceError
from evictune_policies.replay.traces.trace import Trace

from tests.support.traces import check_trace, write_lines

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens"


def read(directory: Path, *rows: str, header: str = HEADER, end: str = "\n") -> Trace:
    trace = lengths.read(write_lines(directory / "lengths.csv", [header, *rows], end=end))
    check_trace(trace)
    return trace


def test_lengths_and_times(tmp_path: Path) -> None:
    trace = read(
        tmp_path, "2023-11-16 18:15:46.6805900,374,44", "2023-11-16 18:15:50.9951690,396,109"
    )
    assert trace.arrival.tolist() == pytest.approx([0, 4.314579])
    assert trace.prompt_tokens.tolist() == [374, 396]
    assert trace.output_tokens.tolist() == [44, 109]


def test_nothing_is_known_of_the_contents(tmp_path: Path) -> None:
    trace = read(tmp_path, "0,374,44", "1,374,44")
    assert trace.distinct == 0
    assert trace.known_tokens.tolist() == [0, 0]
    assert trace.prompt_blocks.tolist() == [24, 24]
    assert "not what a cache would hit" in lengths.LENGTHS_ONLY


def test_the_block_size_is_assumed(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "lengths.csv", [HEADER, "0,64,1"])
    assert lengths.read(path, Assumptions(block_tokens=32)).prompt_blocks.tolist() == [2]


@pytest.mark.parametrize(
    ("header", "row"),
    [
        ("arrival,prompt_tokens,output_tokens", "7,5,6"),
        ("x, Output Tokens ,time,input length", "0,6,2024-05-10 00:00:00.009930+00:00,5"),
        ("﻿TIMESTAMP,ContextTokens,GeneratedTokens", "2024-05-10T00:00:00Z,5,6"),
    ],
)
def test_names_of_columns(tmp_path: Path, header: str, row: str) -> None:
    trace = read(tmp_path, row, header=header)
    assert (trace.prompt_tokens[0], trace.output_tokens[0]) == (5, 6)


def test_dirt(tmp_path: Path) -> None:
    trace = read(tmp_path, "5,10,1", "2,10,1", "5,10,1", "6,0,1", "7,9,-1", "8,1", end="")
    assert trace.arrival.tolist() == [0, 3, 5]
    assert trace.repairs == {
        "unsorted": 1,
        "duplicate": 1,
        "empty prompt": 1,
        "no output": 1,
        "truncated": 1,
    }


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("0,x,1", "line 2: contexttokens: 'x' is not a whole number of tokens; correct the line"),
        ("0,1,1.5", "line 2: generatedtokens: '1.5' is not a whole number"),
        (f"0,{10**400},1", "contexttokens: '1000*...' is not a whole number|contexttokens: '1"),
        ("0,1", "line 2: 2 columns are too few"),
        ("yesterday,1,1", "timestamp: 'yesterday' is neither a date and time nor a number"),
        ("nan,1,1", "timestamp: 'nan' is neither"),
    ],
)
def test_what_is_refused(tmp_path: Path, row: str, says: str) -> None:
    with pytest.raises(TraceError, match=says):
        read(tmp_path, row)


def test_columns_have_to_be_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"line 1: header: '0,5,6' has no column timestamp"):
        read(tmp_path, header="0,5,6")
