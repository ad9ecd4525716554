"""A container's process as the node sees it: start, signal, exit code. See `shim`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from localcluster.processnode import shim

# What containerd reports when a container's command cannot be executed.
START_ERROR_EXIT_CODE = 128
KILLED_EXIT_CODE = 137
_POLL_SECONDS = 0.01


@dataclass(frozen=True)
class Launch:
    """What to run: `cwd` and `log` are absolute paths; the log is appended to."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    log: str


@dataclass(frozen=True)
class Exit:
    """How a process ended: 128 + N for signal N; `error` if it could not be started at all."""

    code: int
    error: str | None = None


class Process:
    """A running command below a shim. `poll` must be called to learn what became of it."""

    def __init__(self, launch: Launch) -> None:
        self.pid: int | None = None
        self.exit: Exit | None = None
        self._rest = b""
        self._shim = subprocess.Popen(
            [sys.executable, "-I", "-S", shim.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd="/",
            start_new_session=True,  # a Ctrl-C in a terminal is for the node, not for pods
        )
        assert self._shim.stdin is not None
        assert self._shim.stdout is not None
        self._stdin, self._stdout = self._shim.stdin, self._shim.stdout
        os.set_blocking(self._stdout.fileno(), False)
        self._send(json.dumps(asdict(launch)))

    @property
    def identity(self) -> str:
        """The process's id and start time in clock ticks: unique while the machine is up."""
        return f"{self.pid}-{_start_ticks(self.pid)}"

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the command itself, as a runtime does to a container's process 1."""
        self._send(number.name)

    def poll(self) -> Exit | None:
        """Take in what the shim has said; the exit, once the last descendant is gone."""
        while self.exit is None:
            try:
                data = os.read(self._stdout.fileno(), 65536)
            except BlockingIOError:
                break
            if not data:
                self._shim_ended()
                break
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                self._take(json.loads(line))
        return self.exit

    def wait(self, timeout: float) -> Exit | None:
        """Poll for at most `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while self.poll() is None and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        return self.exit

    def wait_started(self, timeout: float) -> None:
        """Poll until the command runs or has failed to start, for at most `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while self.poll() is None and self.pid is None and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)

    def close(self) -> None:
        """Kill whatever is left and wait for it."""
        self._stdin.close()  # the shim's sign to kill everything
        self._shim.wait()
        self.poll()
        self._stdout.close()

    def _send(self, line: str) -> None:
        try:
            self._stdin.write(line.encode() + b"\n")
            self._stdin.flush()
        except BrokenPipeError:  # ended by itself; poll() tells how
            return

    def _take(self, event: dict[str, object]) -> None:
        if "pid" in event:
            self.pid = int(str(event["pid"]))
        elif "failed" in event:
            self.exit = Exit(START_ERROR_EXIT_CODE, str(event["failed"]))
        else:
            self.exit = Exit(int(str(event["exit"])))

    def _shim_ended(self) -> None:
        """The shim ended without a word: it was killed, and the kernel killed the command."""
        if self.pid is not None:
            _kill_session(self.pid)
        self.exit = Exit(KILLED_EXIT_CODE, "the process's supervisor was killed")


def _kill_session(pid: int) -> None:
    """Kill the command's process group, which its children share unless they left it."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _start_ticks(pid: int | None) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:  # ended already
        return "0"
