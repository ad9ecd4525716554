"""A person's terminal at the cluster: kubectl, helm and evictune on the PATH, and no more."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from localcluster.binaries import ensure
from localcluster.controlplane import ControlPlane
from localcluster.paths import SOURCE_ROOT

INTERRUPTED = (130, -signal.SIGINT)
"""What a program that Ctrl-C ended leaves; a shell calls both 130.

CPython ends itself by the signal where that struck inside `exec` of a text, such as numba's, even
if the program caught it and returned a code of its own.
"""


class ShellError(AssertionError):
    """A command failed; the message is the command and all it said."""


class Shell:
    """Runs lines of bash in `directory`, where `charts` leads to the checkout's."""

    def __init__(self, cluster: ControlPlane, directory: Path) -> None:
        self.cluster = cluster
        self.directory = directory
        programs = directory / ".bin"
        programs.mkdir(parents=True)
        for name in ("kubectl", "helm"):
            (programs / name).symlink_to(ensure(name))
        _write_program(programs / "evictune", f'exec "{sys.executable}" -m evictune.cli "$@"')
        (directory / "charts").symlink_to(SOURCE_ROOT / "charts")
        self._environment = {
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "KUBECONFIG": str(cluster.kubeconfig),
            "HELM_CACHE_HOME": str(directory / ".helm"),
            "PYTHONPATH": str(SOURCE_ROOT / "operator"),
        }

    def run(self, line: str, input: str | None = None, timeout: float = 180.0) -> str:
        """What a line prints. Raises ShellError if any command of it fails."""
        done = self._run(line, input, timeout)
        if done.returncode != 0:
            raise ShellError(f"$ {line}\n{done.stdout}{done.stderr}")
        return done.stdout

    def refused(self, line: str, input: str | None = None) -> str:
        """What a line that must fail says on standard error. Raises ShellError if it succeeds."""
        done = self._run(line, input, 180.0)
        if done.returncode == 0:
            raise ShellError(f"$ {line}\n{done.stdout}{done.stderr}\nwas expected to fail")
        return done.stderr

    def _run(
        self, line: str, input: str | None, timeout: float
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-o", "pipefail", "-ec", line],
            input=input,
            stdin=subprocess.DEVNULL if input is None else None,
            cwd=self.directory,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
        )


def _write_program(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)
