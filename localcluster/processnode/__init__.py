"""ProcessNode: a Kubernetes node without root, whose pods are local processes on loopback.

It registers a Node with a real API server and runs the pods bound to it, as a small kubelet:
command, args and env; ConfigMap, Secret, downward API, projected, emptyDir and hostPath volumes;
init containers; probes; status; restarts; graceful termination.

What differs from a node with containers, and is meant to:

- `image` is ignored: the local machine's programs run, found by the node's own PATH. `command`
  must be set, for the image's entrypoint is not known.
- Nothing can be mounted without root. A volume lives in the pod's own directory, and where a
  container's command, args, env values, workingDir or exec probes name a mountPath (or a path
  under it), the real place is put instead. Paths that a program has built in, or reads from a
  file, are not seen: give them to it in an argument or a variable. Mounts are not read-only.
- Every pod gets an address of its own, 127.A.B.C, as status.podIP. A server must bind it, not
  0.0.0.0, or two pods cannot use the same port; `$(POD_IP)` in args carries it. Services do not
  reach pods: the API allows no loopback address in EndpointSlices.
- Resources are accepted and not enforced. Processes run as the user of the node, and see the
  machine's files, processes and network.
- A pod field that is not on the list in `spec` makes the pod Failed with reason
  UnsupportedPodField and a message that names it.
- The back-off between restarts is 1 to 30 s, where kubelet's is 10 to 300 s.
- emptyDir volumes do not survive the node's process; its pods' containers are then started anew.

Linux only (addresses, PR_SET_PDEATHSIG). Teardown is complete: when the node stops, is
interrupted, or is killed with -9, its pods' processes end with it.
"""

from __future__ import annotations

import os
import secrets
import selectors
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType

from localcluster.ledger import Ledger
from localcluster.paths import SOURCE_ROOT
from localcluster.processnode.sandbox import log_file

__all__ = ["ProcessNode", "ProcessNodeError"]

_START_SECONDS = 60.0
# Pods have 2 s to stop, the API server 10 s to answer; more than that is a hang.
_STOP_SECONDS = 30.0


class ProcessNodeError(Exception):
    """The node could not be started; the message holds the end of its log."""


class ProcessNode:
    """A node in a process of its own, for as long as the `with` block lasts.

    `directory` receives volumes (removed at the end) and logs (kept); without it, a temporary
    directory is used and removed with its logs.
    """

    def __init__(
        self, kubeconfig: Path, name: str = "process-node", directory: Path | None = None
    ) -> None:
        self.name = name
        self._kubeconfig = kubeconfig
        self._temporary = directory is None
        scratch = Path(tempfile.gettempdir()) / f"process-node-{secrets.token_hex(4)}"
        self.directory = (directory or scratch).resolve()
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int:
        """The process id of the running node."""
        if self._process is None:
            raise ProcessNodeError(f"node {self.name} is not running: use it in a with block")
        return self._process.pid

    @property
    def node_log(self) -> Path:
        """What the node itself has to say."""
        return self.directory / "node.log"

    def log(self, namespace: str, pod: str, container: str) -> Path:
        """The file that holds a container's standard output and error, of all its runs."""
        return log_file(self.directory, namespace, pod, container)

    def __enter__(self) -> ProcessNode:
        self._ledger = Ledger()
        self._ledger.note("tree", str(self.directory / ("" if self._temporary else "pods")))
        self.directory.mkdir(parents=True, exist_ok=True)
        with self.node_log.open("w") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "localcluster.processnode", "--until-stdin-closes"),
                    *("--kubeconfig", str(self._kubeconfig), "--name", self.name),
                    *("--directory", str(self.directory)),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**self._ledger.environment, "PYTHONPATH": _python_path()},
                start_new_session=True,  # a Ctrl-C reaches the caller, whose exit ends the node
            )
        try:
            self._wait_ready(self._process)
        except BaseException:  # Ctrl-C too: what was started must not stay; raised again below
            self._stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop()

    def _wait_ready(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        deadline = time.monotonic() + _START_SECONDS
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            answered = selector.select(deadline - time.monotonic())
        if not answered or process.stdout.readline().strip() != "ready":
            tail = "".join(self.node_log.read_text().splitlines(keepends=True)[-10:])
            what = "ended" if answered else f"was not ready after {_START_SECONDS:g} s"
            raise ProcessNodeError(f"node {self.name} {what}; the end of its log:\n{tail}")

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            try:
                process.communicate(timeout=_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()  # the pods' processes die with it
                process.communicate()
        self._ledger.undo()


def _python_path() -> str:
    """So that the node's process finds this package, from wherever it is started."""
    return os.pathsep.join(filter(None, [str(SOURCE_ROOT), os.environ.get("PYTHONPATH", "")]))
