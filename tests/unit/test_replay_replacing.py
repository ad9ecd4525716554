"""A file is written as a whole or not at all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from evictune_policies.replay.traces import native
from evictune_policies.replay.traces.mooncake import read
from evictune_policies.replay.traces.replacing import replacing
from evictune_policies.replay.traces.request_log import Writer

from tests.support.traces import MOONCAKE

KILLED = """
import os, signal, sys
from pathlib import Path
from evictune_policies.replay.traces.replacing import replacing
with replacing(Path(sys.argv[1])) as part:
    part.write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def names(directory: Path) -> list[str]:
    return sorted(each.name for each in directory.iterdir())


def test_the_file_is_there_once_all_is_written(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")
    with replacing(path) as part:
        part.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert names(tmp_path) == ["report.html"]


def test_nothing_stays_of_what_failed(tmp_path: Path) -> None:
    def fails() -> None:
        with replacing(tmp_path / "report.html") as part:
            part.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fails()
    assert names(tmp_path) == []


def test_a_killed_writer_leaves_the_old_file_and_the_next_one_cleans_up(tmp_path: Path) -> None:
    path = tmp_path / "report[1].html"
    path.write_text("old")
    killed = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert path.read_text() == "old"
    assert len(names(tmp_path)) == 2
    running = tmp_path / f".report[1].html.{os.getppid()}.part"
    running.write_text("of another process, which is at work")
    with replacing(path) as part:
        part.write_text("new")
    assert names(tmp_path) == [running.name, "report[1].html"]


def test_a_link_stays_a_link_and_a_device_is_written_at_once(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("file")
    with replacing(tmp_path / "link") as part:
        part.write_text("new")
    assert (tmp_path / "file").read_text() == "new"
    assert (tmp_path / "link").is_symlink()
    with replacing(Path("/dev/null")) as part:
        assert part == Path("/dev/null")


def test_what_cannot_be_written_is_named(tmp_path: Path) -> None:
    for path, says in (
        (Path("/dev/full"), "No space left"),
        (tmp_path / "nowhere" / "file", "No such file"),
    ):
        with pytest.raises(OSError, match=says) as refused, replacing(path) as part:
            part.write_text("x")
        assert refused.value.filename == str(path)


@pytest.mark.parametrize("name", ["log", "log.gz"])
def test_a_conversion_that_fails_leaves_the_old_log(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = read(MOONCAKE)
    path = tmp_path / name
    path.write_text("old")
    with monkeypatch.context() as broken:
        broken.setattr(Writer, "write", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            native.convert(trace, path)
    assert names(tmp_path) == [name]
    assert path.read_text() == "old"
