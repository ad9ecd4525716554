"""Building the cluster's programs, with a stand-in for the go command at the process edge."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from localcluster import binaries, building
from localcluster.binaries import BuildError, ensure, version

ROOT = Path(__file__).resolve().parents[2]

# Writes half of its output, waits, and then the whole, as an interrupted linker would show.
FAKE_GO = """\
#!/bin/sh
case "$1" in
env) echo "${FAKE_VERSION:-go1.26.8}" ;;
build)
    echo "$@" >> "$FAKE_LOG"
    while [ $# -gt 0 ]; do [ "$1" = -o ] && out=$2; shift; done
    echo half > "$out"
    sleep "${FAKE_SECONDS:-0}"
    while [ -n "$FAKE_UNTIL" ] && [ ! -e "$FAKE_UNTIL" ]; do sleep 0.05; done
    [ -n "$FAKE_FAILS" ] && { echo "undefined: x"; exit 1; }
    echo whole > "$out"
    ;;
esac
"""
ENSURE = "import sys; from localcluster.binaries import ensure; print(ensure(sys.argv[1]))"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a PATH on which `go` is the stand-in."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "go").write_text(FAKE_GO)
    (programs / "go").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "builds"))
    return tmp_path / "cache" / "evictune"


def builds(cache: Path) -> list[str]:
    """The command lines that the stand-in was asked to build with."""
    log = cache.parents[1] / "builds"
    return log.read_text().splitlines() if log.exists() else []


def leftovers(cache: Path) -> list[str]:
    """Files in the cache other than locks."""
    return sorted(path.name for path in cache.iterdir() if not path.name.endswith(".lock"))


def start_ensure(name: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", ENSURE, name],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "it did not come about in 20 s"
        time.sleep(0.02)


def half_built(cache: Path) -> bool:
    return any(path.read_text() == "half\n" for path in cache.glob(".*.partial"))


def test_builds_once_and_only_what_is_asked_for(cache: Path) -> None:
    path = ensure("kube-scheduler", progress=lambda line: None)
    again = ensure("kube-scheduler", progress=lambda line: None)

    assert path == again == cache / f"kube-scheduler-{version('kube-scheduler')}"
    assert path.read_text() == "whole\n"
    assert len(builds(cache)) == 1
    assert leftovers(cache) == [path.name]


@pytest.mark.parametrize("name", sorted(binaries.SOURCES))
def test_every_version_comes_from_go_mod(name: str) -> None:
    source = binaries.SOURCES[name]
    assert f"\t{source.module} {version(name)}" in (source.directory / "go.mod").read_text()
    assert f"{source.package}\n" in (source.directory / "go.mod").read_text()  # its tool line


def test_kubernetes_programs_are_told_their_version(cache: Path) -> None:
    ensure("kubelet", progress=lambda line: None)
    ensure("etcd", progress=lambda line: None)

    kubelet, etcd = builds(cache)
    assert f"gitVersion={version('kubelet')}" in kubelet
    assert "gitVersion" not in etcd


def test_interrupted_build_leaves_nothing(cache: Path) -> None:
    process = start_ensure("etcd", FAKE_SECONDS="30")
    wait_for(lambda: half_built(cache))
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)

    assert process.returncode != 0
    assert leftovers(cache) == []
    started = time.monotonic()  # the lock is free and no stand-in sleeps on with it
    assert ensure("etcd", progress=lambda line: None).read_text() == "whole\n"
    assert time.monotonic() - started < 10


def test_killed_builder_leaves_no_half_program(cache: Path) -> None:
    process = start_ensure("etcd", FAKE_SECONDS="1")
    wait_for(lambda: half_built(cache))
    process.kill()
    process.communicate(timeout=20)

    assert not (cache / f"etcd-{version('etcd')}").exists()
    path = ensure("etcd", progress=lambda line: None)
    assert path.read_text() == "whole\n"
    assert leftovers(cache) == [path.name]


def test_two_builders_build_once(cache: Path) -> None:
    go_on = cache.parents[1] / "go-on"
    first = start_ensure("etcd", FAKE_UNTIL=str(go_on))
    wait_for(lambda: half_built(cache))
    second = start_ensure("etcd", FAKE_UNTIL=str(go_on))
    assert second.stderr is not None
    said = second.stderr.readline()
    go_on.touch()
    path, same_path = (process.communicate(timeout=20)[0] for process in (first, second))

    assert path == same_path != ""
    assert "another process builds it" in said
    assert len(builds(cache)) == 1


def test_progress_goes_on_while_it_builds(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "PROGRESS_SECONDS", 0.1)
    monkeypatch.setenv("FAKE_SECONDS", "0.5")
    lines: list[str] = []
    ensure("etcd", progress=lines.append)

    assert lines[0].startswith("building etcd v3")
    assert len(lines) >= 4
    assert lines[-1].startswith("built etcd")


def test_failed_build_shows_the_compiler(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_FAILS", "1")
    with pytest.raises(BuildError, match="undefined: x"):
        ensure("etcd", progress=lambda line: None)
    assert leftovers(cache) == []


def test_missing_go_names_the_version_needed(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(cache))
    with pytest.raises(BuildError, match=r"`go` is not on the PATH, and Go 1\.26\.0 or newer"):
        ensure("etcd", progress=lambda line: None)


def test_old_go_names_both_versions(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_VERSION", "go1.19.8")
    with pytest.raises(BuildError, match=r"needs Go 1\.26\.0 or newer, this one is 1\.19\.8"):
        ensure("etcd", progress=lambda line: None)


def test_cached_program_needs_no_go(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = ensure("etcd", progress=lambda line: None)
    monkeypatch.setenv("PATH", str(cache))
    assert ensure("etcd", progress=lambda line: None) == path


def test_unknown_program_is_named() -> None:
    with pytest.raises(BuildError, match="'kube-proxy' is not a program of localcluster"):
        ensure("kube-proxy")


def test_kubectl_is_the_packaged_one() -> None:
    answer = subprocess.run(
        [ensure("kubectl"), "version", "--client"], capture_output=True, text=True, check=True
    )
    assert "Client Version: v1." in answer.stdout
