"""A named cluster that outlives the command that started it: `python -m localcluster up`.

`up` starts a process of its own, the keeper, which holds the cluster as any other owner does: a
`with` block around a wait. `down` ends the keeper; if it was killed instead, its reaper cleans up.
The keeper writes what it has to say to `state.json` in the cluster's directory.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from localcluster.binaries import BuildError, Progress
from localcluster.controlplane import ControlPlane
from localcluster.identity import alive, identity
from localcluster.ledger import sweep
from localcluster.node import Node, NodeError
from localcluster.paths import SOURCE_ROOT, cache_directory
from localcluster.processes import ProgramFailed
from localcluster.system import MachineError

POLL_SECONDS = 0.2
DOWN_SECONDS = 60.0


class BackgroundError(RuntimeError):
    """`up` or `down` could not do it; the message says why."""


@dataclass(frozen=True)
class State:
    """What is known of a running cluster. `node` is a name, or empty for none."""

    keeper: str
    server: str
    kubeconfig: str
    logs: str
    node: str


def directory_of(name: str) -> Path:
    """Where a named cluster keeps its state, logs and kubeconfig."""
    if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?", name):
        raise BackgroundError(
            f"--name {name!r}: at most 32 lower case letters, digits and inner hyphens"
        )
    return cache_directory() / "clusters" / name


def state_of(name: str) -> State | None:
    """The state of a running cluster, or None."""
    try:
        state = State(**json.loads((directory_of(name) / "state.json").read_text()))
    except (FileNotFoundError, ValueError, TypeError):  # none, or of another version of this
        return None
    return state if alive(state.keeper) else None


def up(name: str, with_node: bool, progress: Progress) -> State:
    """Start a cluster and leave it running; what the keeper says on the way goes to `progress`."""
    if state_of(name) is not None:
        raise BackgroundError(f"cluster {name!r} is up already: `down` it first")
    directory = directory_of(name)
    with _claimed(name) as claim:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "state.json").unlink(missing_ok=True)
        log = directory / "keeper.log"
        with log.open("wb") as output:
            keeper = subprocess.Popen(
                [sys.executable, "-m", "localcluster.background", name, "node" * with_node],
                cwd=SOURCE_ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                pass_fds=[claim.fileno()],
            )
        try:
            return _follow(keeper, name, log, progress)
        except BaseException:  # Ctrl-C too: what was started must not stay; raised again below
            keeper.terminate()
            keeper.wait()
            raise


def down(name: str) -> bool:
    """End a cluster, its logs included, and clean up after any whose owner died.

    False if there was nothing to do.
    """
    state = state_of(name)
    if state is not None:
        os.kill(int(state.keeper.split(":")[1]), signal.SIGTERM)
        deadline = time.monotonic() + DOWN_SECONDS
        while alive(state.keeper):
            if time.monotonic() > deadline:
                raise BackgroundError(f"cluster {name!r} does not end: see {state.logs}")
            time.sleep(POLL_SECONDS)
    with _claimed(name):
        swept = sweep()
        shutil.rmtree(directory_of(name), ignore_errors=True)
    return state is not None or bool(swept)


@contextlib.contextmanager
def _claimed(name: str) -> Iterator[IO[bytes]]:
    """Hold the name against other commands; a keeper inherits the hold for as long as it lives."""
    directory = directory_of(name)
    directory.parent.mkdir(exist_ok=True)
    with directory.with_suffix(".lock").open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BackgroundError(
                f"cluster {name!r} is just being started or ended: wait, or interrupt that command"
            ) from None
        yield file


def _follow(keeper: subprocess.Popen[bytes], name: str, log: Path, progress: Progress) -> State:
    """Pass on the keeper's lines until the cluster is up. Raises BackgroundError if it ends."""
    with log.open() as lines:
        while (state := state_of(name)) is None:
            ended = keeper.poll() is not None
            text = lines.read()
            if ended:
                raise BackgroundError(text.strip() or f"the keeper ended: see {log}")
            for line in text.splitlines():
                progress(line)
            time.sleep(POLL_SECONDS)
    return state


def _keep(name: str, with_node: bool) -> None:
    """The keeper: hold the cluster until SIGTERM."""
    signal.signal(signal.SIGTERM, _interrupt)
    directory = directory_of(name)
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(ControlPlane(directory))
        node = stack.enter_context(Node(cluster)) if with_node else None
        state = State(
            keeper=identity(os.getpid()),
            server=cluster.server,
            kubeconfig=str(cluster.kubeconfig),
            logs=str(cluster.directory / "logs"),
            node=node.name if node else "",
        )
        partial = directory / "state.partial"
        partial.write_text(json.dumps(asdict(state), indent=2))
        partial.rename(directory / "state.json")
        stack.callback((directory / "state.json").unlink, missing_ok=True)
        while True:
            signal.pause()


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def main() -> None:
    """Run the keeper; errors for people go to its log without a traceback."""
    try:
        _keep(sys.argv[1], bool(sys.argv[2]))
    except KeyboardInterrupt:
        pass
    except (BuildError, MachineError, NodeError, ProgramFailed, OSError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
