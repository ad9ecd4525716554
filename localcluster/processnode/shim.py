"""The parent of one container's processes: it outlives nobody and leaves nobody behind.

Run as a script, one per container, by `process.Process`:

- It starts the container's command in a session of its own, with output going to the log.
- It is the reaper of all descendants, those that became daemons too (PR_SET_CHILD_SUBREAPER).
- When the command ends, all descendants are killed, as happens in a container's PID namespace.
- When its standard input closes, the node is gone (killed, perhaps): everything is killed.
- Should the shim itself be killed, the kernel kills the command (PR_SET_PDEATHSIG).

Protocol: the first line on standard input is a JSON object {argv, env, cwd, log}; later lines are
names of signals for the command (SIGTERM, SIGKILL). On standard output, one JSON object a line:
{"pid": N} or {"failed": TEXT}, and at the end {"exit": CODE}, 128 + N for signal N.

Only the standard library's fast part is imported, for a start in milliseconds.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LIBC = ctypes.CDLL(None, use_errno=True)


class _Commands:
    """Lines on standard input; `closed` once the node has gone away."""

    def __init__(self) -> None:
        self._buffer = b""
        self.closed = False

    def read(self) -> list[bytes]:
        data = os.read(0, 65536)
        self.closed = not data
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        return lines


def main() -> None:
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    commands = _Commands()
    lines: list[bytes] = []
    while not lines:
        lines = commands.read()
        if commands.closed:
            return
    woken, waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(waker)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    try:
        pid = _start(json.loads(lines[0]))
    except OSError as error:
        _say({"failed": str(error)})
        return
    _say({"pid": pid})
    code = _supervise(pid, commands, woken)
    _kill_descendants()
    _say({"exit": code})


def _start(launch: dict[str, Any]) -> int:
    """Start the command; OSError if it cannot be executed."""
    shim = os.getpid()

    def die_with_the_shim() -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != shim:  # it died before the call above
            os._exit(1)

    with Path(launch["log"]).open("ab") as log:
        process = subprocess.Popen(
            launch["argv"],
            env=launch["env"],
            cwd=launch["cwd"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=die_with_the_shim,
        )
    process.returncode = 0  # reaped by _reap, not by Popen, which would warn
    return process.pid


def _supervise(pid: int, commands: _Commands, woken: int) -> int:
    """Pass signals on and reap, until the command has ended; returns its exit code."""
    code = _reap(pid)
    while code is None:
        readable, _, _ = select.select([woken] if commands.closed else [0, woken], [], [])
        if woken in readable:
            os.read(woken, 4096)
        if 0 in readable:
            for line in commands.read():
                os.kill(pid, signal.Signals[line.decode()])
            if commands.closed:
                os.kill(pid, signal.SIGKILL)
        code = _reap(pid)
    return code


def _reap(pid: int) -> int | None:
    """Collect every child that ended; the exit code if `pid` is among them."""
    code = None
    while True:
        try:
            child, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return code
        if child == 0:
            return code
        if child == pid:
            ended = os.waitstatus_to_exitcode(status)
            code = ended if ended >= 0 else 128 - ended


def _kill_descendants() -> None:
    while remaining := _descendants(os.getpid()):
        for pid in remaining:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.005)
        _reap(0)


def _descendants(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            parent = _parent(entry)
            children.setdefault(parent, []).append(int(entry.name))
    found = list(children.get(root, []))
    for pid in found:  # grows while it is walked
        found.extend(children.get(pid, []))
    return found


def _parent(process: Path) -> int:
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:  # ended in the meantime
        return -1


def _say(event: dict[str, Any]) -> None:
    try:
        os.write(1, json.dumps(event).encode() + b"\n")
    except BrokenPipeError:  # the node is gone; nobody is left to tell
        return


if __name__ == "__main__":
    main()
