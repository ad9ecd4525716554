"""What a cluster has made on this machine, on disk, so that it can always be undone.

There is one teardown, `Ledger.undo`, and it works from the ledger alone. It runs when a context
manager is left, in the reaper when the owner has died without leaving it (see `reaper`), and in
`sweep` when the reaper was killed as well. Crash and orderly exit are thus the same path.

A thing is noted before it is made; undoing what was never made is fine. Processes need no note:
each is started with `TAG` in its environment, which its children inherit, so that none is missed
even when the owner dies between starting a process and writing down its id.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from localcluster import reaper
from localcluster.identity import alive, identity
from localcluster.paths import run_directory

TAG = "EVICTUNE_LEDGER"
CGROUPS = Path("/sys/fs/cgroup")
PROXIES = {"http_proxy", "https_proxy", "all_proxy"}

Kind = Literal["owner", "tree", "cgroup", "link", "network", "file"]


class TeardownError(RuntimeError):
    """Something a cluster made could not be removed; the message says what and why."""


class Ledger:
    """The ledger of one owner (this process): append what will be made, `undo` it all."""

    def __init__(self) -> None:
        self.id = secrets.token_hex(3)
        self.path = run_directory() / f"{self.id}.jsonl"
        # Complete from the first moment: without an owner it would look like a dead one's.
        partial = self.path.with_suffix(".partial")
        partial.write_text(_line("owner", identity(os.getpid())))
        partial.rename(self.path)
        reaper.watch(self.id)

    @property
    def environment(self) -> dict[str, str]:
        """The environment for every process of this owner: ours, and the tag.

        Without proxies: all that these processes talk to is on this machine.
        """
        ours = {key: value for key, value in os.environ.items() if key.lower() not in PROXIES}
        return {**ours, TAG: self.id}

    def note(self, kind: Kind, name: str) -> None:
        """Write down that `name` is about to be made."""
        with self.path.open("a") as file:
            file.write(_line(kind, name))

    def undo(self) -> None:
        """Remove everything in the ledger, then the ledger."""
        undo(self.path)
        reaper.unwatch(self.id)


def _line(kind: Kind, name: str) -> str:
    return json.dumps({kind: name}) + "\n"


def entries(path: Path) -> list[tuple[str, str]]:
    """(kind, name) of each note in a ledger; a line cut short by a crash ends it."""
    found: list[tuple[str, str]] = []
    for line in path.read_text().splitlines():
        try:
            found.extend(json.loads(line).items())
        except json.JSONDecodeError:
            break
    return found


def ledgers() -> Iterator[tuple[Path, list[tuple[str, str]]]]:
    """Every ledger of this user with its notes, newest first."""
    paths = sorted(run_directory().glob("*.jsonl"), key=_modified, reverse=True)
    for path in paths:
        try:
            yield path, entries(path)
        except FileNotFoundError:  # undone meanwhile by its owner
            continue


def sweep() -> list[str]:
    """Undo the ledgers whose owner is gone. Returns their ids.

    Raises TeardownError for those that would not go, after all have been tried.
    """
    swept, problems = [], []
    for path, notes in ledgers():
        if any(kind == "owner" and alive(name) for kind, name in notes):
            continue
        try:
            undo(path)
        except TeardownError as error:
            problems.append(str(error))
        else:
            swept.append(path.stem)
    if problems:
        raise TeardownError("\n".join(problems))
    return swept


def undo(path: Path) -> None:
    """Remove everything noted in the ledger at `path`, newest first, and then the ledger.

    Raises TeardownError, and keeps the ledger, if anything would not go. When the reaper and a
    sweep meet at one ledger, the second waits for the first and finds nothing to do.
    """
    try:
        file = path.open()
    except FileNotFoundError:
        return
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if path.exists():
            _undo_all(path)


def _undo_all(path: Path) -> None:
    problems: list[str] = []
    try:
        kill_tagged(path.stem)
    except TeardownError as error:
        problems.append(str(error))
    for kind, name in reversed(entries(path)):
        try:
            _undo_one(kind, name)
        except (OSError, TeardownError) as error:
            problems.append(f"{kind} {name}: {error}")
    if problems:
        raise TeardownError(f"teardown of {path}: " + "; ".join(problems))
    path.unlink()


def kill_tagged(tag: str, timeout: float = 20.0) -> None:
    """Kill every process whose environment carries our tag, until none is left."""
    deadline = time.monotonic() + timeout
    while pids := _tagged(tag):
        if time.monotonic() > deadline:
            raise TeardownError(f"processes {pids} do not die")
        for pid in pids:
            _kill(pid)
        time.sleep(0.05)


def _tagged(tag: str) -> list[int]:
    wanted = f"{TAG}={tag}".encode()
    return [
        int(directory.name)
        for directory in Path("/proc").iterdir()
        if directory.name.isdigit() and wanted in _environment_of(directory).split(b"\0")
    ]


def _environment_of(directory: Path) -> bytes:
    try:
        return (directory / "environ").read_bytes()
    except (OSError, ProcessLookupError):  # gone, or another user's: not ours either way
        return b""


def _undo_one(kind: str, name: str) -> None:
    if kind == "tree":
        _remove_tree(Path(name))
    elif kind == "file":
        Path(name).unlink(missing_ok=True)
    elif kind == "cgroup":
        _remove_cgroup(name)
    elif kind == "link" and Path("/sys/class/net", name).exists():
        subprocess.run(["ip", "link", "del", name], capture_output=True, check=False)
        _wait_gone(Path("/sys/class/net", name))


def _remove_tree(path: Path) -> None:
    """Remove a directory, unless something is mounted in it: that must not be deleted."""
    inside = [mount for mount in _mount_points() if mount.is_relative_to(path)]
    if inside:
        raise TeardownError(f"still mounted: {', '.join(map(str, inside))}")
    for _ in range(3):  # a dying process may still add a file while we remove
        shutil.rmtree(path, ignore_errors=True)
        if not path.exists():
            return
        time.sleep(0.2)
    shutil.rmtree(path)


def _mount_points() -> list[Path]:
    # proc(5): the fifth field of mountinfo. Ours hold none of the characters it escapes.
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [Path(line.split()[4]) for line in lines]


def _remove_cgroup(name: str) -> None:
    """Remove the cgroup `name` and those below it, in every hierarchy (v1) or the one (v2)."""
    for root in [*CGROUPS.glob(f"*/{name}"), CGROUPS / name]:
        for directory, _, _ in os.walk(root, topdown=False):
            _remove_empty_cgroup(Path(directory))


def _remove_empty_cgroup(path: Path, timeout: float = 10.0) -> None:
    """rmdir, retried while the kernel still counts the processes that were just killed."""
    deadline = time.monotonic() + timeout
    while path.exists():
        for pid in (path / "cgroup.procs").read_text().split():
            _kill(int(pid))
        try:
            path.rmdir()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it ended by itself
        os.kill(pid, signal.SIGKILL)


def _wait_gone(path: Path, timeout: float = 10.0) -> None:
    deadline = time.monotonic() + timeout
    while path.exists():
        if time.monotonic() > deadline:
            raise TeardownError(f"{path} is still there")
        time.sleep(0.05)


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
