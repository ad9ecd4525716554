"""Conversations as text or token counts, with assumed times."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from evictune_policies.replay.traces import conversations
from evictune_policies.replay.traces.assumptions import Assumptions
from evictune_policies.replay.traces.files import TraceError
from evictune_policies.replay.traces.trace import Trace

from tests.support.traces import chain, check_trace


def said(author: str, text: str) -> dict[str, Any]:
    return {"from": author, "value": text}


def counted(author: str, tokens: int) -> dict[str, Any]:
    return {"from": author, "tokens": tokens}


def read(directory: Path, *talks: list[dict[str, Any]], **assumed: Any) -> Trace:
    path = directory / "talks.json"
    path.write_text(json.dumps([{"id": "x", "conversations": talk} for talk in talks]))
    trace = conversations.read(path, Assumptions(**({"block_tokens": 2} | assumed)))
    check_trace(trace)
    return trace


def test_an_answer_is_a_request_and_its_prompt_is_all_before(tmp_path: Path) -> None:
    trace = read(
        tmp_path,
        [
            counted("system", 3),
            counted("human", 2),
            counted("gpt", 4),
            counted("human", 1),
            counted("gpt", 2),
        ],
    )
    assert trace.prompt_tokens.tolist() == [5, 10]
    assert trace.output_tokens.tolist() == [4, 2]
    assert trace.previous.tolist() == [-1, 0]
    assert trace.known_tokens.tolist() == [9, 12]
    # The first one's last block was partial; the second one's prompt fills it.
    assert chain(trace, 0)[:4] == chain(trace, 1)[:4]
    assert chain(trace, 0)[4] != chain(trace, 1)[4]


def test_a_token_is_four_bytes_of_a_message(tmp_path: Path) -> None:
    trace = read(tmp_path, [said("human", "grüße"), said("gpt", ""), said("user", "12345678")])
    assert trace.prompt_tokens.tolist() == [2, 4]
    assert trace.output_tokens.tolist() == [0, 0]
    assert trace.repairs == {"no output": 1}


def test_equal_beginnings_are_shared(tmp_path: Path) -> None:
    rules = said("system", "be brief, be kind")  # 5 tokens: two whole blocks
    trace = read(
        tmp_path,
        [rules, said("human", "hello"), said("gpt", "hi")],
        [rules, said("human", "where"), said("gpt", "there")],
        [said("human", "be brief, be kind")],
    )
    chains = sorted(chain(trace, number)[:2] for number in range(3))
    assert chains == [[0, 1]] * 3
    assert len({chain(trace, number)[2] for number in range(3)}) == 3


def test_counts_alone_share_nothing(tmp_path: Path) -> None:
    talk = [counted("human", 4), counted("gpt", 4)]
    trace = read(tmp_path, talk, talk)
    assert not set(chain(trace, 0)) & set(chain(trace, 1))


def test_arrivals_are_assumed(tmp_path: Path) -> None:
    talk = [counted("human", 2), counted("gpt", 2)] * 40
    trace = read(
        tmp_path,
        *[talk] * 50,
        block_tokens=512,
        conversations_per_second=0.5,
        think_seconds=3.0,
        seed=4,
    )
    first = trace.previous == -1
    assert np.sum(first) == 50
    assert np.mean(np.diff(trace.arrival[first])) == pytest.approx(2, rel=0.5)
    assert np.mean(trace.think[~first]) == pytest.approx(3, rel=0.1)
    came_after = trace.arrival[~first] - trace.arrival[trace.previous[~first]]
    assert np.allclose(came_after, trace.think[~first])


def test_a_conversation_without_words_is_no_request(tmp_path: Path) -> None:
    trace = read(tmp_path, [], [said("gpt", "hello")], [said("human", "a"), said("gpt", "b")])
    assert trace.requests == 1
    assert trace.repairs == {"empty prompt": 1}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[", "talks.json: not JSON"),
        ('[{"id": 5}]', "object missing required field `conversations`"),
        ('[{"conversations": [{"from": "gpt", "tokens": -1}]}]', "-1 is negative; correct it"),
        ("[]", "holds no requests"),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "talks.json"
    path.write_text(text)
    with pytest.raises(TraceError, match=says):
        conversations.read(path)


@pytest.mark.parametrize(
    ("assumed", "says"),
    [
        ({"conversations_per_second": 0.0}, "conversations per second: 0.0 is not a positive"),
        ({"think_seconds": float("nan")}, "think seconds: nan is negative or not a number"),
        ({"block_tokens": 0}, "block tokens: 0; a block has at least 1 token"),
    ],
)
def test_what_cannot_be_assumed(assumed: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Assumptions(**assumed)
