"""Real traces, compiled: the carried one always, more where EVICTUNE_TRACES names a directory."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from evictune_policies.replay.traces import intern, native
from evictune_policies.replay.traces.reading import read_trace

from tests.support.traces import MOONCAKE, check_trace, traces_at_hand


def test_the_carried_trace_is_what_its_authors_describe() -> None:
    trace = read_trace(MOONCAKE)
    assert trace.requests == 12_031
    assert trace.arrival[-1] == pytest.approx(3537, abs=1)
    assert len(np.unique(trace.arrival)) == 1_180
    assert trace.distinct == 182_790
    assert trace.repairs == {}
    # Infinite cache: a block hits if it is not the first of its content; partial ones included.
    assert 1 - trace.distinct / len(trace.contents) == pytest.approx(0.366, abs=0.001)


def test_the_turns_that_are_inferred_from_the_carried_trace() -> None:
    """Nearly every turn sends the answer before back as well, which was not asked for."""
    trace = read_trace(MOONCAKE)
    later = np.flatnonzero(trace.previous >= 0)
    before = trace.previous[later]
    growth = trace.prompt_tokens[later] - trace.prompt_tokens[before]
    assert len(later) > 3_500
    assert np.mean(growth >= trace.output_tokens[before] - 20) > 0.9
    assert np.median(trace.arrival[later] - trace.arrival[before]) > 60


@pytest.mark.parametrize("path", traces_at_hand())
def test_every_trace_keeps_the_promises_and_survives_conversion(path: Path, tmp_path: Path) -> None:
    trace = read_trace(path)
    check_trace(trace)
    native.convert(trace, tmp_path / "log.gz")
    again = read_trace(tmp_path / "log.gz")
    assert again.repairs == {}
    for field in dataclasses.fields(trace):
        if field.name in ("repairs", "tenant", "tenants"):
            continue
        ours, theirs = getattr(trace, field.name), getattr(again, field.name)
        if field.name in ("arrival", "think"):
            assert np.allclose(ours, theirs, rtol=0, atol=1e-6, equal_nan=True)
        else:
            assert np.array_equal(ours, theirs), field.name
    tenants = [np.array(one.tenants)[one.tenant] for one in (trace, again)]
    assert np.array_equal(*tenants)
    assert (tmp_path / "log.gz").stat().st_size < 24 * trace.distinct + 100 * trace.requests


def test_compiled_and_plain_number_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough hashes for several groups, every other one seen before."""
    hashes = np.random.default_rng(5).integers(0, 2**64, 60_000, np.uint64)
    hashes[::2] = hashes[1::2][::-1]
    compiled = intern.numbers(hashes)
    monkeypatch.setattr(intern, "WORTH_COMPILING", 1 << 40)
    plain = intern.numbers(hashes)
    assert compiled[1] == plain[1] == 30_000
    assert np.array_equal(compiled[0], plain[0])
