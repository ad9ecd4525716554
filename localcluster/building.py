"""For what is built once and kept: progress lines, a lock a name, and builds that end with us."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from localcluster.paths import cache_directory

Progress = Callable[[str], None]

PROGRESS_SECONDS = 10.0
TAIL_LINES = 20


class BuildError(RuntimeError):
    """Something cannot be built; the message says why and what to do."""


def print_progress(line: str) -> None:
    """The default progress: a line on stderr."""
    print(line, file=sys.stderr, flush=True)


@contextmanager
def exclusive(name: str, progress: Progress) -> Iterator[IO[bytes]]:
    """Hold the build lock of `name`; say so while another process holds it."""
    with (cache_directory() / f".{name}.lock").open("ab") as file:
        started = time.monotonic()
        said = -PROGRESS_SECONDS
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                waited = time.monotonic() - started
                if waited - said >= PROGRESS_SECONDS:
                    progress(f"{name}: another process builds it, waiting ({waited:.0f} s)")
                    said = waited
                time.sleep(0.2)
        yield file


def run(
    command: Sequence[str | Path],
    label: str,
    progress: Progress,
    *,
    directory: Path | None = None,
    lock: IO[bytes] | None = None,
) -> None:
    """Run a long command with progress lines each 10 s; its output is shown only if it fails.

    Whatever interrupts us ends all of its processes. If we are killed, the orphan keeps `lock`
    held until it has ended, since it inherits it. Raises BuildError.
    """
    started = time.monotonic()
    process = subprocess.Popen(
        [str(part) for part in command],
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
        pass_fds=[] if lock is None else [lock.fileno()],
    )
    try:
        output = _output(process, label, started, progress)
    except BaseException:  # Ctrl-C too: what was started must not stay; raised again below
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    if process.returncode != 0:
        tail = "\n".join(output.splitlines()[-TAIL_LINES:])
        raise BuildError(f"{label} failed (status {process.returncode}):\n{tail}")


def _output(process: subprocess.Popen[str], label: str, started: float, progress: Progress) -> str:
    while True:
        try:
            return process.communicate(timeout=PROGRESS_SECONDS)[0]
        except subprocess.TimeoutExpired:
            progress(f"{label}: {time.monotonic() - started:.0f} s")
