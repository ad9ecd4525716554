"""The traces that tests read: one is carried, more are read where they are present.

The environment variable EVICTUNE_TRACES names a directory that holds traces, and directories of
agentic sessions. Tests over `traces_at_hand()` run for the carried one in any case.
"""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from evictune_policies.replay.traces.trace import Trace

MOONCAKE = Path(__file__).parents[1] / "data" / "traces" / "mooncake-conversation.jsonl.xz"


def traces_at_hand() -> list[Any]:
    """Parameters for a test: the paths of all traces, each with its name."""
    directory = os.environ.get("EVICTUNE_TRACES")
    found = sorted(_traces_in(Path(directory))) if directory else []
    return [pytest.param(path, id=path.name) for path in [MOONCAKE, *found]]


def _traces_in(directory: Path) -> list[Path]:
    """Files of one trace each; a directory of JSON files is a trace as a whole."""
    paths = []
    for path in directory.iterdir():
        if path.is_dir() and any(path.glob("*.json")):
            paths.append(path)
        elif path.is_dir():
            paths += _traces_in(path)
        elif {".jsonl", ".csv"} & set(path.suffixes):
            paths.append(path)
    return paths


def write_lines(path: Path, records: list[Any], *, end: str = "\n") -> Path:
    """Write JSON Lines, gzip if the name says so; what is a string already is written as it is."""
    lines = [one if isinstance(one, str) else json.dumps(one) for one in records]
    text = ("\n".join(lines) + end).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def mooncake_record(timestamp: float, tokens: int, ids: list[int], out: int = 10) -> dict[str, Any]:
    """One line of Mooncake's format."""
    return {
        "timestamp": timestamp,
        "input_length": tokens,
        "output_length": out,
        "hash_ids": ids,
    }


def chain(trace: Trace, request: int) -> list[int]:
    """A request's contents."""
    return trace.contents[trace.starts[request] : trace.starts[request + 1]].tolist()


def check_trace(trace: Trace) -> None:
    """Everything that a `Trace` promises."""
    n, counts = trace.requests, np.diff(trace.starts)
    for values in (trace.prompt_tokens, trace.output_tokens, trace.known_tokens, counts):
        assert len(values) == n
    assert trace.starts[0] == 0
    assert trace.starts[-1] == len(trace.contents)
    assert np.all(np.diff(trace.arrival) >= 0)
    assert np.all(trace.prompt_tokens > 0)
    assert np.all(trace.output_tokens >= 0)
    assert np.all(trace.known_tokens <= trace.tokens)
    assert np.array_equal(counts, -(-trace.known_tokens // trace.block_tokens))
    assert np.all(trace.parent < np.arange(trace.distinct))
    for request in range(n):
        ids = chain(trace, request)
        assert trace.parent[ids].tolist() == [-1, *ids][: len(ids)]
        assert trace.depth[ids].tolist() == list(range(len(ids)))
    assert np.all(trace.previous < np.arange(n))
    assert np.all(np.isnan(trace.think) | (trace.previous >= 0))
    followed = np.zeros(n, bool)
    followed[trace.previous[trace.previous >= 0]] = True
    assert not np.any(trace.final & followed)
    assert np.all((trace.tenant >= 0) & (trace.tenant < len(trace.tenants)))
    assert all(count > 0 for count in trace.repairs.values())
