"""Cleans up after a process that died without leaving its clusters: kill -9 included.

One reaper a process that owns clusters, in a session of its own so that Ctrl-C does not reach it.
It waits for the owner's end (pidfd, hence no polling and no confusion by a reused id), undoes the
owner's ledgers, and ends. When the owner has undone its last ledger itself, it ends the reaper.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import threading

from localcluster.identity import alive, identity
from localcluster.paths import SOURCE_ROOT, run_directory

_watched: set[str] = set()
_reaper: subprocess.Popen[bytes] | None = None
_started_by = 0
_guard = threading.Lock()


def watch(ledger: str) -> None:
    """From now on the ledger is undone when this process dies."""
    global _reaper, _started_by
    with _guard:
        if _started_by != os.getpid():  # after a fork: the parent's reaper watches the parent
            _watched.clear()
            _reaper = None
        if _reaper is None or _reaper.poll() is not None:
            _reaper, _started_by = _start(), os.getpid()
        _watched.add(ledger)


def unwatch(ledger: str) -> None:
    """The ledger was undone. The last one ends the reaper."""
    global _reaper
    with _guard:
        _watched.discard(ledger)
        if _reaper is not None and not _watched and _started_by == os.getpid():
            _reaper.kill()
            _reaper.wait()
            _reaper = None


def _start() -> subprocess.Popen[bytes]:
    log = (run_directory() / "reaper.log").open("ab")
    with log:
        return subprocess.Popen(
            [sys.executable, "-m", "localcluster.reaper", identity(os.getpid())],
            cwd=SOURCE_ROOT,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def main(owner: str) -> None:
    """Wait until the owner is gone, then undo what it left."""
    # Imported here: the ledger itself starts reapers.
    from localcluster.ledger import ledgers, undo

    try:
        end = os.pidfd_open(int(owner.split(":")[1]))
    except ProcessLookupError:
        pass
    else:
        if alive(owner):
            select.select([end], [], [])
        os.close(end)
    for path, notes in ledgers():
        if ("owner", owner) in notes:
            undo(path)


if __name__ == "__main__":
    main(sys.argv[1])
