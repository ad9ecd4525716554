"""Names of clusters are held by one command at a time; what cannot be used is said in one line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from localcluster import background, paths
from localcluster.__main__ import main
from localcluster.background import BackgroundError, directory_of, state_of


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own, with a space in its name."""
    directory = tmp_path / "my cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(directory))
    return directory


def test_a_name_that_another_command_holds_is_left_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    directory_of("a").mkdir(parents=True)
    with background._claimed("a"):
        for command in ("up", "down"):
            assert main([command, "--name", "a"]) == 1
            assert "just being started or ended" in capsys.readouterr().err
        assert directory_of("a").exists()
    assert not background.down("a")
    assert not directory_of("a").exists()


def test_the_hold_lasts_as_long_as_the_process_that_inherits_it() -> None:
    with background._claimed("a") as claim:
        keeper = subprocess.Popen(
            [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=[claim.fileno()]
        )
    try:
        with pytest.raises(BackgroundError), background._claimed("a"):
            pass
    finally:
        keeper.communicate(b"\n", timeout=30)
    with background._claimed("a"):
        pass


@pytest.mark.parametrize("text", ["", "{", "[]", json.dumps({"of": "another version"})])
def test_a_state_that_cannot_be_read_is_none(text: str) -> None:
    directory_of("a").mkdir(parents=True)
    (directory_of("a") / "state.json").write_text(text)
    assert state_of("a") is None


def test_down_twice_and_status_of_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert [main(["down"]), main(["down"])] == [0, 0]
    assert capsys.readouterr().out == "nothing to remove\n" * 2
    assert main(["status"]) == 1
    assert "python -m localcluster up" in capsys.readouterr().err


def test_a_name_is_no_path(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["down", "--name", "../x"]) == 1
    assert "--name '../x'" in capsys.readouterr().err


def test_a_cache_that_cannot_be_made_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert main(["down"]) == 1
    assert str(tmp_path / "file") in capsys.readouterr().err


def test_a_relative_cache_is_ignored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The keeper works in another directory: it would mean another place there."""
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert paths.cache_directory() == tmp_path / ".cache/evictune"


def test_without_a_home_it_says_what_to_set(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", nowhere)
    assert main(["down"]) == 1
    assert "Set HOME, or XDG_CACHE_HOME" in capsys.readouterr().err
