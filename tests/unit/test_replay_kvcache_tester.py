"""Agentic sessions: local ids, times within a session, subagents, shared prompts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from evictune_policies.replay.traces import kvcache_tester
from evictune_policies.replay.traces.assumptions import Assumptions
from evictune_policies.replay.traces.files import TraceError
from evictune_policies.replay.traces.trace import Trace

from tests.support.traces import chain, check_trace


def request(t: float, tokens: int, ids: list[int], **more: Any) -> dict[str, Any]:
    return {"t": t, "type": "n", "in": tokens, "out": 3, "hash_ids": ids, **more}


def session(*requests: dict[str, Any], **more: Any) -> dict[str, Any]:
    fixed = {"block_size": 4, "hash_id_scope": "local", "tool_tokens": 4, "system_tokens": 5}
    return fixed | {"requests": list(requests)} | more


def read(directory: Path, *sessions: dict[str, Any], **assumed: Any) -> Trace:
    for number, one in enumerate(sessions):
        (directory / f"trace_{number}.json").write_text(json.dumps(one))
    trace = kvcache_tester.read(directory, Assumptions(**assumed))
    check_trace(trace)
    return trace


def test_a_session(tmp_path: Path) -> None:
    trace = read(
        tmp_path,
        session(
            request(0.0, 10, [1, 2], api_time=2.5, think_time=0.0),
            request(7.0, 17, [1, 2, 3, 4], api_time=1.0, think_time=4.0),
        ),
    )
    assert trace.arrival.tolist() == [0, 7]
    assert trace.known_tokens.tolist() == [8, 16]
    assert trace.previous.tolist() == [-1, 0]
    assert trace.think[1] == 4
    assert trace.tenants == ("trace_0",)
    assert trace.repairs == {}


def test_ids_are_a_files_own(tmp_path: Path) -> None:
    one = session(request(0, 12, [1, 2, 3]), id="a")
    trace = read(tmp_path, one, one | {"id": "b"})
    assert [chain(trace, number) for number in range(2)] == [[0, 1, 2], [3, 4, 5]]
    assert trace.tenants == ("a", "b")
    assert trace.repairs == {}


def test_ids_of_global_scope_are_everybodys(tmp_path: Path) -> None:
    one = session(request(0, 12, [1, 2, 3]), hash_id_scope="global")
    trace = read(tmp_path, one, one)
    assert chain(trace, 1) == chain(trace, 0)


def test_prompts_may_be_taken_for_shared(tmp_path: Path) -> None:
    """Tools: the first block; with the system prompt: the second; the third is its own."""
    trace = read(
        tmp_path,
        session(request(0, 12, [1, 2, 3])),
        session(request(0, 12, [7, 8, 9])),
        session(request(0, 12, [1, 2, 3]), system_tokens=4),
        session(request(0, 12, [1, 2, 3]), tool_tokens=5, system_tokens=4),
        share_prompts=True,
    )
    chains = [chain(trace, number) for number in range(4)]
    assert chains == [[0, 1, 2], [0, 1, 3], [0, 4, 5], [6, 7, 8]]
    assert trace.name.endswith(", prompts shared")


def test_a_prompt_that_changes_is_not_shared_from_there_on(tmp_path: Path) -> None:
    trace = read(
        tmp_path,
        session(request(0, 12, [1, 2, 3]), request(1, 12, [1, 5, 3])),
        session(request(0, 12, [7, 8, 9])),
        share_prompts=True,
        conversations_per_second=1e-6,
    )
    assert [chain(trace, number) for number in range(3)] == [[0, 1, 2], [0, 3, 4], [0, 1, 5]]


def test_prompts_of_absurd_lengths_end_with_the_requests(tmp_path: Path) -> None:
    odd = {"tool_tokens": 2**53, "system_tokens": -7}
    one = session(request(0, 12, [1, 2, 3]), **odd)
    trace = read(tmp_path, one, one, share_prompts=True)
    assert chain(trace, 0) == chain(trace, 1)


def test_sessions_begin_as_a_poisson_process(tmp_path: Path) -> None:
    sessions = [session(request(0, 4, [1]), request(5, 8, [1, 2])) for _ in range(3)]
    often = read(tmp_path, *sessions, conversations_per_second=1.0)
    seldom = read(tmp_path, *sessions, conversations_per_second=0.001)
    again = read(tmp_path, *sessions, conversations_per_second=0.001)
    other = read(tmp_path, *sessions, conversations_per_second=0.001, seed=1)
    assert seldom.arrival.tolist() == again.arrival.tolist() != other.arrival.tolist()
    first = seldom.arrival[seldom.previous == -1]
    assert np.allclose(first, 1000 * often.arrival[often.previous == -1])
    assert np.allclose(seldom.arrival[seldom.previous != -1] - first, 5)
    default = read(tmp_path, *sessions)
    assert np.allclose(default.arrival[default.previous == -1], first * 60 / 1000)


def test_after_an_answer_without_end_the_think_time_is_estimated(tmp_path: Path) -> None:
    trace = read(
        tmp_path,
        session(
            request(0, 8, [1, 2], api_time=2.0),
            request(10, 8, [1, 2], think_time=8.0),
            request(15, 8, [1, 2], think_time=13.0, api_time=4.0),
            request(17, 8, [1, 2], api_time=3.0),
            request(29, 8, [1, 2], api_time=3.0, think_time=-1.0),
        ),
    )
    # The median api_time is 3. The last but one came before the answer to the one before it.
    assert trace.think.tolist()[1:] == [8, 2, 0, 0]
    assert trace.repairs == {"estimated think time": 2}


def test_subagents_run_beside_the_session(tmp_path: Path) -> None:
    inner = {"t": 5.0, "type": "subagent", "requests": [request(1, 12, [9, 10, 11])]}
    agent = {
        "t": 20.0,
        "type": "subagent",
        "tool_tokens": 8,
        "system_tokens": 0,
        "requests": [request(0, 8, [7, 8]), inner, request(3, 12, [7, 8, 9])],
    }
    trace = read(tmp_path, session(request(0, 8, [1, 2]), agent, request(22, 9, [1, 2])))
    assert trace.arrival.tolist() == [0, 20, 22, 23, 26]
    assert trace.previous.tolist() == [-1, -1, 0, 1, -1]
    assert trace.repairs == {"contradicting ids": 1, "estimated think time": 2}


def test_requests_of_a_session_out_of_order(tmp_path: Path) -> None:
    trace = read(tmp_path, session(request(9, 8, [1, 2]), request(0, 4, [1])))
    assert trace.previous.tolist() == [-1, 0]
    assert trace.repairs["unsorted"] == 1


def test_a_request_without_prompt_is_no_turn(tmp_path: Path) -> None:
    trace = read(
        tmp_path,
        session(request(0, 4, [1]), request(1, 0, []), request(2, 8, [1, 2], think_time=1)),
    )
    assert trace.previous.tolist() == [-1, 0]
    assert trace.repairs["empty prompt"] == 1


def test_one_file_is_enough(tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    path.write_text(json.dumps(session(request(0, 4, [1]))))
    assert kvcache_tester.read(path).tenants == ("one",)


def test_block_sizes_that_differ_are_refused(tmp_path: Path) -> None:
    one = session(request(0, 4, [1]))
    with pytest.raises(TraceError, match=r"trace_1.json: block_size: 8 is not the 4 of trace_0"):
        read(tmp_path, one, one | {"block_size": 8})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", r"trace_0.json: not JSON"),
        ('{"requests": []}', "object missing required field `block_size`"),
        ('{"requests": 5, "block_size": 4}', r"requests: 5 \(expected `array`, got `int`\)"),
        ('{"requests": [], "block_size": 0}', "block_size: 0 is not a block size; correct it"),
        ('{"requests": [], "block_size": 4}', "holds no requests"),
        (
            '{"requests": [{"t": 0, "in": 4, "hash_ids": [-1]}], "block_size": 4}',
            "block id: -1 is not an unsigned number",
        ),
        ('{"requests": [{"t": "0"}], "block_size": 4}', "expected `float`, got `str`"),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "trace_0.json").write_text(text)
    with pytest.raises(TraceError, match=says):
        kvcache_tester.read(tmp_path)


def test_a_directory_without_sessions_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"no file \*.json or \*.json.gz in it"):
        kvcache_tester.read(tmp_path)
