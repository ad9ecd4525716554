"""Any format, packed or not, found out or named."""

from __future__ import annotations

import errno
import gzip
import io
import json
import lzma
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from evictune_policies.replay.traces import files
from evictune_policies.replay.traces.assemble import REPAIRS
from evictune_policies.replay.traces.reading import FORMATS, TraceError, detected, read_trace

from tests.support.traces import mooncake_record

TEXTS = {
    "native": (
        '{"schema":"evictune.io/trace/v1","block_tokens":4}\n["admit",0,0,4]\n["free",1,0,1,0]\n'
    ),
    "mooncake": json.dumps(mooncake_record(0, 4, [1])) + "\n",
    "kv-cache-tester": json.dumps(
        {"id": "s", "block_size": 4, "requests": [{"t": 0, "in": 4, "hash_ids": [1]}]}
    ),
    "lengths": "TIMESTAMP,ContextTokens,GeneratedTokens\n0,5,6\n",
    "conversations": '[{"conversations": [{"from": "human", "value": "hello"}]}]',
}


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress], ids=["-", "gzip", "xz"])
def test_each_format_is_found_out_whatever_the_file_is_called(
    tmp_path: Path, name: str, pack: Any
) -> None:
    path = tmp_path / "trace"
    path.write_bytes(pack(TEXTS[name].encode()))
    assert detected(path) == name
    assert read_trace(path).requests == read_trace(path, name).requests == 1


def test_a_session_may_be_indented(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text(json.dumps(json.loads(TEXTS["kv-cache-tester"]), indent=2))
    assert detected(path) == "kv-cache-tester"


def test_a_directory_holds_sessions(tmp_path: Path) -> None:
    (tmp_path / "one.json.gz").write_bytes(gzip.compress(TEXTS["kv-cache-tester"].encode()))
    assert read_trace(tmp_path).requests == 1


@pytest.mark.parametrize("cut", [20, 60])
def test_a_packed_file_that_is_cut_off(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "trace.gz"
    lines = [json.dumps(mooncake_record(n, 4, [n * 7919 % 1000])) for n in range(500)]
    packed = gzip.compress("\n".join(lines).encode())
    path.write_bytes(packed[:-cut])
    trace = read_trace(path)
    assert 0 < trace.requests < 500 or cut == 20
    assert trace.repairs["truncated"] >= 1


def test_a_packed_session_that_is_cut_off_is_of_no_use(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(gzip.compress(TEXTS["kv-cache-tester"].encode())[:-9])
    with pytest.raises(TraceError, match=r"cannot be unpacked \(.*\); copy the file again"):
        read_trace(path, "kv-cache-tester")


@pytest.mark.parametrize("cut", [3, 12])
@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress], ids=["gzip", "xz"])
def test_a_packed_file_that_is_cut_off_before_its_first_line(
    tmp_path: Path, pack: Callable[[bytes], bytes], cut: int
) -> None:
    path = tmp_path / "trace"
    path.write_bytes(pack(TEXTS["mooncake"].encode())[:cut])
    with pytest.raises(TraceError, match=r"trace: is (cut off|in none)"):
        read_trace(path)


DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize(
    "text",
    [
        DEEP,
        f'[{{"conversations": {DEEP}}}]',
        f'{{"requests": [], "block_size": 1, "more": {DEEP}}}',
        f'{{"timestamp": 0, "input_length": 1, "hash_ids": [], "more": {DEEP}}}\n',
        f'{{"schema": "evictune.io/trace/v1", "block_tokens": {DEEP}}}\n',
        f"{TEXTS['mooncake']}{DEEP}\n",
    ],
    ids=["auto", "conversations", "kv-cache-tester", "mooncake", "native", "a later line"],
)
def test_what_is_nested_too_deep_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "trace"
    path.write_text(text)
    for name in ("auto", *FORMATS):
        with pytest.raises(TraceError) as refusal:
            read_trace(path, name)
        assert len(str(refusal.value)) < 400


@pytest.mark.parametrize("name", ["auto", *FORMATS])
def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(TraceError, match="pipe: is no regular file; write what comes out of it"):
        read_trace(tmp_path / "pipe", name)


def test_a_log_of_another_version_is_refused_as_such(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text('{"schema": "evictune.io/trace/v9", "block_tokens": 16}\n')
    with pytest.raises(TraceError, match=r"schema: .*v9. is not evictune"):
        read_trace(path)


def test_what_cannot_be_read_is_not_taken_for_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "trace"
    path.write_text(TEXTS["mooncake"])

    def broken(_: Path) -> io.BufferedIOBase:
        stream = io.BytesIO(TEXTS["mooncake"].encode())
        stream.readline = Mock(side_effect=OSError(errno.EIO, "Input/output error"))  # type: ignore[method-assign]
        return stream

    monkeypatch.setattr(files, "opened", broken)
    with pytest.raises(TraceError, match="trace: Input/output error; give a file that can be read"):
        read_trace(path, "mooncake")


@pytest.mark.parametrize("text", ["", "\n \n"])
def test_an_empty_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "trace"
    path.write_text(text)
    with pytest.raises(TraceError, match="trace: is empty; give a trace with at least one request"):
        read_trace(path)


@pytest.mark.parametrize("text", ["hello\n", "{}", "5\n", '{"a": "requests"}', "a,b\n"])
def test_what_is_no_trace_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "trace"
    path.write_text(text)
    with pytest.raises(TraceError, match="is in none of the known formats; name it: --format"):
        read_trace(path)


def test_a_trace_named_wrongly_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    for name in FORMATS:
        path.write_text(TEXTS["lengths" if name != "lengths" else "mooncake"])
        with pytest.raises(TraceError, match=r"trace"):
            read_trace(path, name)


@pytest.mark.parametrize(
    ("name", "format_name", "says"),
    [
        ("nowhere", "auto", "nowhere: does not exist; give the path of a trace"),
        (".", "mooncake", "is a directory; give a file for the format mooncake"),
        ("trace", "csv", "unknown format 'csv'; use auto or one of native, mooncake"),
    ],
)
def test_what_cannot_be_read(tmp_path: Path, name: str, format_name: str, says: str) -> None:
    (tmp_path / "trace").write_text(TEXTS["mooncake"])
    with pytest.raises(TraceError, match=says):
        read_trace(tmp_path / name, format_name)


@pytest.mark.parametrize("milliseconds", ["1e300", "-1e300", "4.6e15"])
def test_a_time_that_no_request_log_could_hold_is_refused(
    tmp_path: Path, milliseconds: str
) -> None:
    path = tmp_path / "trace"
    path.write_text(f'{{"timestamp": {milliseconds}, "input_length": 1, "hash_ids": []}}\n')
    with pytest.raises(TraceError, match=r"trace, line 1: arrival: .* is not a time in seconds of"):
        read_trace(path)


def test_names_in_a_trace_do_not_steer_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    header = {"schema": "evictune.io/trace/v1", "block_tokens": 4, "name": "a\x1b[31m\nb"}
    admit = ["admit", 0, 0, 4, "", -1, 0, "t\x07\u00e9"]
    path.write_text(f"{json.dumps(header)}\n{json.dumps(admit)}\n")
    trace = read_trace(path)
    assert trace.name == r"a\x1b[31m\nb"
    assert trace.tenants == ("t\\x07\u00e9",)


def test_every_repair_is_explained() -> None:
    """The rules' names appear in reports; the page tells what they mean."""
    page = (Path(__file__).parents[2] / "docs" / "reference" / "trace-format.md").read_text()
    for rule in REPAIRS:
        assert f"`{rule}`" in page
