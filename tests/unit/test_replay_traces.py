"""A `Trace` and what can be made of it: smaller blocks, parts, more load."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from evictune_policies.replay.traces import mooncake
from evictune_policies.replay.traces.trace import Trace

from tests.support.traces import chain, check_trace, mooncake_record, write_lines

RECORDS = [
    mooncake_record(0, 10, [0, 1, 2], out=6),
    mooncake_record(1000, 8, [0, 3]),
    mooncake_record(3000, 17, [0, 1, 4, 5, 6]),
    mooncake_record(7000, 3, [7]),
]


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    return mooncake.read(write_lines(tmp_path / "trace.jsonl", RECORDS), block_tokens=4)


def test_what_a_trace_says(trace: Trace) -> None:
    check_trace(trace)
    assert trace.requests == 4
    assert trace.distinct == 8
    assert trace.arrival.tolist() == [0, 1, 3, 7]
    assert trace.tokens.tolist() == [16, 18, 27, 13]
    assert trace.prompt_blocks.tolist() == [3, 2, 5, 1]
    assert trace.whole_blocks.tolist() == [2, 2, 4, 0]
    assert trace.previous.tolist() == [-1, -1, 0, -1]
    assert trace.final.tolist() == [False, True, True, True]
    assert np.all(np.isnan(trace.think))
    assert trace.repairs == {}


def test_chains_hold_whole_blocks_alone(trace: Trace) -> None:
    chains = trace.chains()
    assert chains.starts.tolist() == [0, 2, 4, 8, 8]
    assert chains.contents.tolist() == [0, 1, 0, 3, 0, 1, 4, 5]
    assert chains.parent.tolist() == [-1, 0, 1, 0, 1, 4, 5, -1]
    assert chains.tokens.tolist() == trace.tokens.tolist()


def test_smaller_blocks(trace: Trace) -> None:
    halves = trace.with_block_tokens(2)
    check_trace(halves)
    assert halves.block_tokens == 2
    assert chain(halves, 0) == [0, 1, 2, 3, 4]  # 10 tokens: the half of the partial third block
    assert chain(halves, 1) == [0, 1, 6, 7]
    assert chain(halves, 2) == [0, 1, 2, 3, 8, 9, 10, 11, 12]
    assert halves.known_tokens.tolist() == trace.known_tokens.tolist()
    assert halves.whole_blocks.tolist() == [5, 4, 8, 1]
    assert (
        halves.with_block_tokens(1).contents.tolist()
        == trace.with_block_tokens(1).contents.tolist()
    )


def test_the_same_blocks_are_the_same_trace(trace: Trace) -> None:
    assert trace.with_block_tokens(4) is trace


@pytest.mark.parametrize("size", [3, 8, 0, -4])
def test_blocks_that_cannot_be_made(trace: Trace, size: int) -> None:
    with pytest.raises(ValueError, match=rf"block size {size}: .*use one of 1, 2, 4"):
        trace.with_block_tokens(size)


def test_a_part_is_a_trace_of_its_own(trace: Trace) -> None:
    part = trace.sliced(slice(2, None))
    check_trace(part)
    assert part.arrival.tolist() == [0, 4]
    assert chain(part, 0) == [0, 1, 2, 3, 4]
    assert chain(part, 1) == [5]
    assert part.distinct == 6
    assert part.previous.tolist() == [-1, -1]


def test_a_part_keeps_turns_within_it(trace: Trace) -> None:
    part = trace.sliced(slice(0, 3))
    check_trace(part)
    assert part.previous.tolist() == [-1, -1, 0]


def test_an_empty_part(trace: Trace) -> None:
    part = trace.sliced(slice(2, 2))
    check_trace(part)
    assert part.requests == 0
    assert part.distinct == 0


def test_parts_are_consecutive(trace: Trace) -> None:
    with pytest.raises(ValueError, match="slice step 2: only consecutive"):
        trace.sliced(slice(None, None, 2))


def test_copies_share_nothing_and_do_not_coincide(trace: Trace) -> None:
    twice = trace.superposed(2)
    check_trace(twice)
    assert twice.requests == 8
    assert twice.distinct == 16
    third = 7 / 3  # the mean time between requests; the copy is late by half of it
    assert twice.arrival.tolist() == pytest.approx(
        [0, 1, third / 2, 1 + third / 2, 3, 3 + third / 2, 7, 7 + third / 2]
    )
    assert chain(twice, 0) == [0, 1, 2]
    assert chain(twice, 2) == [8, 9, 10]
    assert twice.previous.tolist() == [-1, -1, -1, -1, 0, 2, -1, -1]


def test_one_copy_is_the_trace(trace: Trace) -> None:
    once = trace.superposed(1)
    assert once.contents.tolist() == trace.contents.tolist()
    assert once.arrival.tolist() == trace.arrival.tolist()


def test_no_copy_is_refused(trace: Trace) -> None:
    with pytest.raises(ValueError, match="0 copies: at least 1"):
        trace.superposed(0)


def test_more_blocks_than_can_be_numbered_are_refused(trace: Trace) -> None:
    with pytest.raises(ValueError, match="more than the 2,147,483,647 that can be numbered"):
        trace.superposed(1 << 29)


def test_faster(trace: Trace) -> None:
    faster = trace.sped_up(2)
    assert faster.arrival.tolist() == [0, 0.5, 1.5, 3.5]
    assert faster.contents is trace.contents


@pytest.mark.parametrize("factor", [0, -1, float("nan"), float("inf")])
def test_no_such_speed(trace: Trace, factor: float) -> None:
    with pytest.raises(ValueError, match="a positive number is needed"):
        trace.sped_up(factor)
