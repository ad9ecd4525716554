"""The folder that outlives the container: whole, torn, missing, taken, not to be written to."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from evictune_policies.engine import state
from evictune_policies.engine.memory import Attempt, Record
from evictune_policies.engine.state import StateError, StateFolder, decode, encode

RECORD = Record(Attempt(7, 0.85, "trying"), ((6, 0.95), (7, 0.5)), ("d-1", "d-2"), True)


def test_what_is_written_is_read_by_the_next(tmp_path: Path) -> None:
    folder = StateFolder(str(tmp_path))
    folder.claim()
    assert folder.read() == Record()
    folder.write(RECORD)
    folder.write(RECORD)
    assert StateFolder(str(tmp_path)).read() == RECORD
    assert sorted(file.name for file in tmp_path.iterdir()) == ["lock", "memory.json"]


def reason_of(error: pytest.ExceptionInfo[StateError]) -> str:
    assert str(error.value)
    return error.value.reason


def test_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "missing", tmp_path / "file", tmp_path / "file/inside"):
        with pytest.raises(StateError, match="mount an emptyDir") as caught:
            StateFolder(str(path)).claim()
        assert reason_of(caught) == "NoStateFolder"


def test_the_default_folder_has_to_be_a_mount(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One in the image would forget, with the container, that a value had failed."""
    monkeypatch.setattr(state, "DEFAULT", tmp_path)
    with pytest.raises(StateError) as caught:
        StateFolder(None).claim()
    assert reason_of(caught) == "NoStateFolder"
    monkeypatch.setattr(state, "DEFAULT", Path("/proc"))
    with pytest.raises(StateError) as caught:
        StateFolder("").claim()
    assert reason_of(caught) == "StateFolderUnwritable"


def test_a_folder_that_cannot_be_written_keeps_the_record_before(tmp_path: Path) -> None:
    folder = StateFolder(str(tmp_path))
    folder.write(RECORD)
    (tmp_path / "memory.new").mkdir()  # also root cannot open it as a file
    with pytest.raises(StateError) as caught:
        folder.write(Record())
    assert reason_of(caught) == "StateFolderUnwritable"
    assert folder.read() == RECORD


def test_a_lock_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "lock").mkdir()
    with pytest.raises(StateError) as caught:
        StateFolder(str(tmp_path)).claim()
    assert reason_of(caught) == "StateFolderUnwritable"


def test_a_second_engine_is_told_and_the_lock_ends_with_its_holder(tmp_path: Path) -> None:
    program = (
        "import sys; from evictune_policies.engine.state import StateFolder;"
        "StateFolder(sys.argv[1]).claim(); print(flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"\n"
        with pytest.raises(StateError) as caught:
            StateFolder(str(tmp_path)).claim()
        assert reason_of(caught) == "StateFolderInUse"
    finally:
        holder.kill()
        holder.communicate()
    StateFolder(str(tmp_path)).claim()


def changed(**fields: object) -> bytes:
    return json.dumps({**json.loads(encode(RECORD)), **fields}).encode()


WHOLE = encode(RECORD)
DAMAGED = {
    "nothing": b"",
    "zeros": bytes(len(WHOLE)),
    "a list": b"[]",
    "nested without end": b"[" * 100_000,
    "another's": changed(schema="evictune.io/memory/v2"),
    "no attempt": json.dumps({"schema": state.SCHEMA}).encode(),
    "an attempt in a word": changed(attempt="trying"),
    "another state": changed(attempt={"revision": 7, "fraction": 0.85, "state": "fine"}),
    "beyond the bounds": changed(attempt={"revision": 7, "fraction": 0.99, "state": "confirmed"}),
    "a fraction in words": changed(failed=[[7, "0.9"]]),
    "a triple": changed(failed=[[7, 0.9, 1]]),
    "revision 0": changed(failed=[[0, 0.9]]),
    "a word that is none": changed(restarted=[7]),
    "leaving in a word": changed(leaving="no"),
}


@pytest.mark.parametrize("text", DAMAGED.values(), ids=DAMAGED)
def test_what_is_no_record_is_said_to_be_damaged(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "memory.json").write_bytes(text)
    with pytest.raises(StateError, match=r"memory\.json") as caught:
        StateFolder(str(tmp_path)).read()
    assert reason_of(caught) == "StateDamaged"


def test_wherever_it_is_torn() -> None:
    for length in range(len(WHOLE)):
        with pytest.raises(ValueError, match=r"record|Expecting|Unterminated|Invalid"):
            decode(WHOLE[:length])


def test_a_directory_in_place_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "memory.json").mkdir()
    with pytest.raises(StateError) as caught:
        StateFolder(str(tmp_path)).read()
    assert reason_of(caught) == "StateDamaged"
