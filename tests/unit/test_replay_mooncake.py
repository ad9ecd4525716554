"""Mooncake's format, and what a dirty trace may hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from evictune_policies.replay.traces import mooncake
from evictune_policies.replay.traces.files import TraceError
from evictune_policies.replay.traces.trace import Trace

from tests.support.traces import chain, check_trace, mooncake_record, write_lines

record = mooncake_record


def read(directory: Path, records: list[Any], **how: Any) -> Trace:
    trace = mooncake.read(write_lines(directory / "trace.jsonl", records, **how), block_tokens=4)
    check_trace(trace)
    return trace


def test_times_are_milliseconds_from_the_first_request(tmp_path: Path) -> None:
    trace = read(tmp_path, [record(5000, 4, [9]), record(5250, 4, [8])])
    assert trace.arrival.tolist() == [0, 0.25]


def test_unsorted_records_are_put_in_order(tmp_path: Path) -> None:
    trace = read(tmp_path, [record(0, 4, [1]), record(9, 4, [2]), record(5, 5, [1, 3])])
    assert trace.arrival.tolist() == [0, 0.005, 0.009]
    assert [chain(trace, request) for request in range(3)] == [[0], [0, 1], [2]]
    assert trace.repairs == {"unsorted": 1}


def test_equal_times_stay_in_the_order_of_the_file(tmp_path: Path) -> None:
    trace = read(tmp_path, [record(1, 5, [1, 2]), record(1, 4, [3]), record(0, 4, [4])])
    assert trace.prompt_tokens.tolist() == [4, 5, 4]


def test_a_record_that_is_there_twice_counts_once(tmp_path: Path) -> None:
    lines = [record(0, 8, [1, 2]), record(3, 4, [3])]
    trace = read(tmp_path, [*lines, *lines])
    assert trace.arrival.tolist() == [0, 0.003]
    assert trace.repairs == {"duplicate": 2, "unsorted": 1}


@pytest.mark.parametrize(
    "other",
    [
        record(1, 8, [1, 2]),
        record(0, 8, [1, 3]),
        record(0, 8, [1, 2], out=11),
        record(0, 7, [1, 2]),
    ],
    ids=["time", "ids", "output", "length"],
)
def test_a_record_that_differs_in_one_field_is_another(tmp_path: Path, other: object) -> None:
    assert read(tmp_path, [record(0, 8, [1, 2]), other]).requests == 2


def test_a_last_line_that_is_cut_off_is_dropped(tmp_path: Path) -> None:
    trace = read(tmp_path, [record(0, 4, [1]), '{"timestamp": 1, "input_le'], end="")
    assert trace.requests == 1
    assert trace.repairs == {"truncated": 1}


def test_a_last_line_without_newline_counts(tmp_path: Path) -> None:
    trace = read(tmp_path, [record(0, 4, [1]), record(1, 4, [1])], end="")
    assert trace.requests == 2
    assert trace.repairs == {}


def test_blank_lines_and_a_byte_order_mark_do_not_matter(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "trace", ["", record(0, 4, [1]), "  ", record(1, 4, [1])])
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert mooncake.read(path, 4).requests == 2


@pytest.mark.parametrize("length", [0, -3])
def test_a_record_without_prompt_is_dropped(tmp_path: Path, length: int) -> None:
    trace = read(tmp_path, [record(0, length, []), record(1, 4, [1])])
    assert trace.requests == 1
    assert trace.arrival.tolist() == [0]
    assert trace.repairs == {"empty prompt": 1}


@pytest.mark.parametrize("out", [-1, None, "left out"])
def test_an_output_length_that_is_none_is_0(tmp_path: Path, out: Any) -> None:
    line = record(0, 4, [1], out)
    if out == "left out":
        del line["output_length"]
    trace = read(tmp_path, [line])
    assert trace.output_tokens.tolist() == [0]
    assert trace.repairs == {"no output": 1}


def test_an_empty_output_is_no_fault(tmp_path: Path) -> None:
    assert read(tmp_path, [record(0, 4, [1], 0)]).repairs == {}


def test_ids_beyond_the_length_are_cut_off(tmp_path: Path) -> None:
    trace = read(tmp_path, [record(0, 5, [1, 2, 3, 4])])
    assert chain(trace, 0) == [0, 1]
    assert trace.known_tokens.tolist() == [5]
    assert trace.repairs == {"surplus ids": 1}


def test_blocks_without_ids_are_unknown(tmp_path: Path) -> None:
    trace = read(tmp_path, [record(0, 13, [1, 2])])
    assert trace.known_tokens.tolist() == [8]
    assert trace.prompt_tokens.tolist() == [13]
    assert trace.repairs == {"missing ids": 1}


def test_a_partial_last_block_may_lack_its_id(tmp_path: Path) -> None:
    trace = read(tmp_path, [record(0, 10, [1, 2])])
    assert trace.known_tokens.tolist() == [8]
    assert trace.repairs == {}


def test_an_id_after_another_block_is_another_block(tmp_path: Path) -> None:
    trace = read(tmp_path, [record(0, 8, [1, 2]), record(1, 8, [3, 2]), record(2, 8, [1, 2])])
    assert [chain(trace, request) for request in range(3)] == [[0, 1], [2, 3], [0, 1]]
    assert trace.repairs == {"contradicting ids": 1}


def test_an_id_of_a_part_is_not_that_of_the_whole(tmp_path: Path) -> None:
    trace = read(tmp_path, [record(0, 6, [1, 2]), record(1, 8, [1, 2]), record(2, 6, [1, 2])])
    assert [chain(trace, request) for request in range(3)] == [[0, 1], [0, 2], [0, 1]]
    assert trace.repairs == {"contradicting ids": 1}


def test_an_id_twice_in_a_chain(tmp_path: Path) -> None:
    trace = read(tmp_path, [record(0, 12, [1, 1, 1])])
    assert chain(trace, 0) == [0, 1, 2]
    assert trace.repairs == {"contradicting ids": 2}


def test_full_width_ids(tmp_path: Path) -> None:
    trace = read(tmp_path, [record(0, 8, [2**64 - 1, 0]), record(1, 8, [2**64 - 1, 2**63])])
    assert [chain(trace, request) for request in range(2)] == [[0, 1], [0, 2]]


def test_the_turn_before_is_the_longest_that_begins_this_one(tmp_path: Path) -> None:
    trace = read(
        tmp_path,
        [
            record(0, 9, [1, 2, 3]),
            record(1, 13, [1, 2, 4, 5]),
            record(2, 17, [1, 2, 4, 6, 7]),  # continues the first: the second's last block differs
            record(3, 21, [1, 2, 4, 6, 8, 9]),  # continues the third
            record(4, 9, [1, 2, 3]),  # the first again
        ],
    )
    assert trace.previous.tolist() == [-1, 0, 1, 2, 0]


def test_a_shared_first_block_makes_no_turn(tmp_path: Path) -> None:
    trace = read(tmp_path, [record(0, 5, [1, 2]), record(1, 9, [1, 3, 4])])
    assert trace.previous.tolist() == [-1, -1]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("nonsense", r"trace.jsonl, line 2: not JSON \("),
        ('{"timestamp": 1}', r"line 2: object missing required field `input_length`; correct it"),
        (
            '{"timestamp": 1, "input_length": "9", "hash_ids": []}',
            r"line 2: input_length: '9' \(expected `int`, got `str`\); correct it or take it out",
        ),
        ('{"timestamp": NaN, "input_length": 1, "hash_ids": []}', "line 2: not JSON"),
        ('{"timestamp": 1e999, "input_length": 1, "hash_ids": []}', "line 2: timestamp: inf "),
        (
            '{"timestamp": 1, "input_length": 4, "hash_ids": [-5]}',
            "line 2: block id: -5 is not an unsigned number of 64 bits; number the blocks from 0",
        ),
        (
            '{"timestamp": 1, "input_length": 1' + "0" * 30 + ', "hash_ids": []}',
            r"line 2: input_length: 10*\.* \(",
        ),
        ("[1]", "line 2: expected `object`, got `array`; correct it"),
    ],
)
def test_what_is_refused(tmp_path: Path, line: str, says: str) -> None:
    with pytest.raises(TraceError, match=says) as refusal:
        read(tmp_path, [record(0, 4, [1]), line, record(2, 4, [1])])
    assert "\n" not in str(refusal.value)


def test_nothing_is_no_trace(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="holds no requests; give a trace with at least one"):
        read(tmp_path, [record(0, 0, [])])
