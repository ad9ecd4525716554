"""The programs of a cluster: started in a session of their own, with a log, and watched."""

from __future__ import annotations

import random
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

TAIL_LINES = 15


class ProgramFailed(RuntimeError):  # noqa: N818 - what happened, not an error of ours
    """A program ended by itself or did not become ready; the message ends with its log's tail."""


class Program:
    """A running program whose output goes to a log file."""

    def __init__(
        self,
        name: str,
        argv: Sequence[str | Path],
        log: Path,
        environment: Mapping[str, str],
        directory: Path | None = None,
    ) -> None:
        self.name = name
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [str(part) for part in argv],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=dict(environment),
                cwd=directory,
                # Ctrl-C goes to a terminal's whole process group; the owner alone must act on it.
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def kill(self) -> None:
        """SIGKILL, and collect its exit status."""
        self._process.kill()
        self._process.wait()

    def wait(self) -> None:
        """Collect the exit status of a program that something else has killed."""
        self._process.wait()

    def check(self) -> None:
        """Raise ProgramFailed if it has ended."""
        if not self.running:
            raise ProgramFailed(
                f"{self.name} ended with status {self._process.returncode}.\n{self.tail()}"
            )

    def tail(self) -> str:
        """The last lines of its log, under a heading."""
        lines = self.log.read_text(errors="replace").splitlines()[-TAIL_LINES:]
        return "\n".join([f"The end of {self.log}:", *(f"    {line}" for line in lines)])


def wait_until(
    ready: Callable[[], bool], programs: Iterable[Program], what: str, timeout: float
) -> None:
    """Poll `ready` until it is true, for at most `timeout` seconds, while all programs run."""
    watched = list(programs)
    deadline = time.monotonic() + timeout
    while not ready():
        for program in watched:
            program.check()
        if time.monotonic() > deadline:
            tails = "\n".join(program.tail() for program in watched)
            raise ProgramFailed(f"{what}: not within {timeout:.0f} s.\n{tails}")
        time.sleep(0.1)


def free_port(host: str = "127.0.0.1") -> int:
    """A TCP port that is free now. The caller must try another if it is taken before use.

    Below the range from which the kernel gives ports to outgoing connections (from 32768), since
    a port from that range may be given away at any moment.
    """
    for _ in range(100):
        port = random.randrange(20000, 32000)
        with socket.socket() as probe:
            try:
                probe.bind((host, port))
            except OSError:
                continue
            return port
    raise OSError(f"no free TCP port between 20000 and 32000 on {host}")
