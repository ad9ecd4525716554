"""Whatever a trace holds: writing it and reading it back, and numbering its blocks."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from evictune_policies.replay.traces import native
from evictune_policies.replay.traces.assemble import Records, assemble
from evictune_policies.replay.traces.intern import chained, numbers
from evictune_policies.replay.traces.trace import Trace
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.traces import chain, check_trace

BLOCK = 4
ANY = settings(max_examples=60)
IDS = st.lists(st.integers(0, 3), max_size=6)  # few ids: chains share, and contradict each other


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """Any trace that a reader can make."""
    records = Records(Path("any"), BLOCK, ids_chained=draw(st.booleans()))
    for number in range(draw(st.integers(1, 12))):
        records.add(
            draw(st.floats(-1e3, 1e6, allow_nan=False)),
            draw(st.integers(1, 30)),
            draw(st.none() | st.integers(-1, 12)),
            draw(IDS),
            ids_of_output=draw(st.booleans()),
            previous=draw(st.integers(-1, number - 1)) if number else -1,
            think=draw(st.floats(0, 1e4) | st.just(float("nan"))),
            tenant=draw(st.sampled_from(["all", "a", "b"])),
        )
        if len(records.arrival) <= number:
            break
    return assemble(records, name="any", infer_turns=draw(st.booleans()))


def written_and_read(trace: Trace, name: str = "log.jsonl.gz") -> Trace:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / name
        native.convert(trace, path)
        return native.read(path)


def fields(trace: Trace, without: Sequence[str] = ()) -> dict[str, Any]:
    values = {
        field.name: getattr(trace, field.name)
        for field in dataclasses.fields(trace)
        if field.name not in without
    }
    return {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in values.items()
    }


@ANY
@given(traces())
def test_what_is_written_is_read_back(trace: Trace) -> None:
    check_trace(trace)
    again = written_and_read(trace)
    check_trace(again)
    without = ("arrival", "think", "repairs", "tenant", "tenants")
    assert fields(again, without) == fields(trace, without)
    assert np.allclose(again.arrival, trace.arrival, rtol=0, atol=1e-6)
    assert np.allclose(again.think, trace.think, rtol=0, atol=1e-6, equal_nan=True)
    tenants = [[one.tenants[tenant] for tenant in one.tenant] for one in (trace, again)]
    assert tenants[0] == tenants[1]
    assert again.repairs == {}


@ANY
@given(traces())
def test_what_was_read_back_does_not_change_any_more(trace: Trace) -> None:
    once = written_and_read(trace)
    assert repr(fields(written_and_read(once, "log.jsonl"))) == repr(fields(once))


def contents_by_tokens(trace: Trace, block_tokens: int) -> list[list[tuple[int, ...]]]:
    """Per request its blocks, each as all tokens up to its end; a token is told by its content."""
    result = []
    for request in range(trace.requests):
        tokens = [
            content * trace.block_tokens + place
            for content in chain(trace, request)
            for place in range(trace.block_tokens)
        ][: trace.known_tokens[request]]
        ends = range(block_tokens, len(tokens) + block_tokens, block_tokens)
        result.append([tuple(tokens[:end]) for end in ends])
    return result


@ANY
@given(traces(), st.sampled_from([1, 2]))
def test_divided_blocks_are_the_same_tokens(trace: Trace, block_tokens: int) -> None:
    """Whole blocks have one number if, and only if, all tokens up to their end are the same."""
    divided = trace.with_block_tokens(block_tokens)
    check_trace(divided)
    number_of: dict[tuple[int, ...], int] = {}
    for request, blocks in enumerate(contents_by_tokens(trace, block_tokens)):
        whole = int(divided.whole_blocks[request])
        for tokens, content in zip(blocks[:whole], chain(divided, request), strict=False):
            assert number_of.setdefault(tokens, content) == content
    assert len(set(number_of.values())) == len(number_of)


@ANY
@given(traces(), st.integers(1, 3), st.data())
def test_parts_and_copies_keep_their_promises(
    trace: Trace, copies: int, data: st.DataObject
) -> None:
    many = trace.superposed(copies)
    check_trace(many)
    first = data.draw(st.integers(0, many.requests))
    part = many.sliced(slice(first, data.draw(st.integers(first, many.requests))))
    check_trace(part)
    shared = many.contents[many.starts[first] : many.starts[first + part.requests]]
    assert (np.unique(shared, return_inverse=True)[1] == part.contents).all()


@ANY
@given(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 20), max_size=60))
def test_numbers_are_in_order_of_first_appearance(hashes: list[int]) -> None:
    number_of: dict[int, int] = {}
    expected = [number_of.setdefault(one, len(number_of)) for one in hashes]
    got, distinct = numbers(np.array(hashes, np.uint64))
    assert (got.tolist(), distinct) == (expected, len(number_of))


@ANY
@given(st.lists(st.tuples(IDS, st.integers(0, BLOCK - 1)), max_size=12))
def test_chained_hashes_are_equal_where_the_chains_are(chains: list[tuple[list[int], int]]) -> None:
    starts = np.cumsum([0, *(len(ids) for ids, _ in chains)])
    ids = np.array([one for ids, _ in chains for one in ids], np.uint64)
    hashes = chained(starts, ids, np.array([last for _, last in chains], np.int64))
    number_of: dict[int, object] = {}
    for row, (row_ids, last) in enumerate(chains):
        for index in range(len(row_ids)):
            partial = last if index == len(row_ids) - 1 else 0
            beginning = (tuple(row_ids[: index + 1]), partial)
            assert number_of.setdefault(int(hashes[starts[row] + index]), beginning) == beginning
    beginnings = {
        (tuple(row_ids[: index + 1]), last if index == len(row_ids) - 1 else 0)
        for row_ids, last in chains
        for index in range(len(row_ids))
    }
    assert len(number_of) == len(beginnings)
