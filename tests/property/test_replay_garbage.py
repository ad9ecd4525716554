"""Whatever stands in a file: a trace that keeps its promises, or a refusal of one line."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from evictune_policies.replay.traces.reading import FORMATS, TraceError, read_trace
from evictune_policies.replay.traces.trace import Trace
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.traces import check_trace, mooncake_record

TEXTS = {
    "native": '{"schema":"evictune.io/trace/v1","block_tokens":4,"turns":true}\n'
    '["admit",0,0,9,"AAAAAAAAAAEAAAAAAAAAAg==",-1,0,"all",-1,null]\n'
    '["chunk",1,0,0,9]\n["free",5,0,3,12,"AAAAAAAAAAM="]\n["drop",5,1]\n'
    '["admit",7,1,9,"",0,2,"all",0,2]\n["abort",8,1]\n["free",8,1,0,8]\n',
    "mooncake": "\n".join(
        json.dumps(mooncake_record(at, 520 * at, list(range(at + 1)))) for at in (1, 3, 2)
    ),
    "kv-cache-tester": json.dumps(
        {
            "block_size": 4,
            "tool_tokens": 4,
            "requests": [
                {"t": 0, "in": 4, "out": 2, "hash_ids": [1], "api_time": 1},
                {"t": 3, "type": "subagent", "requests": [{"t": 0, "in": 9, "hash_ids": [1, 2]}]},
                {"t": 6, "in": 9, "out": 2, "hash_ids": [1, 2], "think_time": 5},
            ],
        }
    ),
    "lengths": "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:01,5,6\n2,7,0\n",
    "conversations": '[{"conversations": [{"from": "human", "value": "hello, you there"}, '
    '{"from": "gpt", "value": "hi"}, {"from": "human", "tokens": 7}]}]',
}
PIECES = st.sampled_from(
    [
        "",
        "-",
        "0",
        "9" * 25,
        "1e308",
        "null",
        "[",
        "]",
        "{",
        "}",
        '"',
        ",",
        ":",
        "\n",
        "\0",
        "é",
        "?",
    ]
)
EDITS = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 6), PIECES), min_size=1, max_size=3)


@settings(max_examples=150)
@given(st.sampled_from(sorted(FORMATS)), EDITS, st.booleans())
def test_a_trace_or_one_line(name: str, edits: list[tuple[int, int, str]], told: bool) -> None:
    text = TEXTS[name]
    for place, length, piece in edits:
        place %= len(text) + 1
        text = text[:place] + piece + text[place + length :]
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "trace"
        path.write_text(text)
        outcome = _read(path, name if told else "auto")
    if isinstance(outcome, str):
        assert outcome.startswith(f"{path}")
        assert "\n" not in outcome
        assert "; " in outcome
    else:
        check_trace(outcome)


def _read(path: Path, format_name: str) -> Trace | str:
    try:
        return read_trace(path, format_name)
    except TraceError as refusal:
        return str(refusal)
