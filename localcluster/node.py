"""`Node`: a real node, containerd and kubelet, in namespaces of its own (root, Linux).

                  this machine                      |  the node's network namespace
    API server  127.0.0.1:PORT                      |
        ^ forward                                   |
    10.A.B.1:443 (Service kubernetes)  --- veth --- |  node address --- bridge cni0 --- pods
    host address                                    |

This machine reaches pods by a route over the link; pods reach this machine at `host_address` and
the API server at the cluster IP of its Service. They reach nothing else: there is no kube-proxy, no
DNS and no way out of the machine. Pods run images that were loaded (`imagePullPolicy: Never`).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import urllib.error
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from localcluster import nodeconfig
from localcluster.binaries import Progress, ensure, print_progress
from localcluster.controlplane import ControlPlane, KubectlError
from localcluster.images import Image, base_image
from localcluster.ledger import CGROUPS, Ledger
from localcluster.network import NodeNetwork
from localcluster.paths import SOURCE_ROOT
from localcluster.processes import Program, wait_until
from localcluster.system import require_node

# As for the control plane, these guard against hangs.
START_SECONDS = 180.0
READY_SECONDS = 300.0


class NodeError(RuntimeError):
    """A command of the node failed; the message holds its output."""


class Node:
    """A node of a control plane's cluster for as long as the `with` block lasts."""

    def __init__(
        self,
        control_plane: ControlPlane,
        name: str = "node-0",
        *,
        progress: Progress = print_progress,
    ) -> None:
        self.control_plane = control_plane
        self.name = name
        self._progress = progress
        self.programs: dict[str, Program] = {}

    def __enter__(self) -> Self:
        require_node()
        self._kubelet = ensure("kubelet", self._progress)
        self.base_image: Image = base_image(self._progress)
        self.network: NodeNetwork = self.control_plane.network.node(self.control_plane.nodes)
        self.control_plane.nodes += 1
        self.ledger = Ledger()
        try:
            self._prepare()
            self._start_namespaces()
            self._connect()
            self._start_containerd()
            self.load_image(self.base_image.archive, self.base_image.reference)
            self._start_kubelet()
        except BaseException:  # Ctrl-C too: what was started must not stay; raised again below
            self._undo()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Kill the node with all its pods, remove what it made, and its Node object."""
        self._undo()
        try:
            self.control_plane.kubectl("delete", "node", self.name, "--wait=false", timeout=10)
        except KubectlError as error:
            self._progress(f"the Node object {self.name} stays: {error}")

    @property
    def host_address(self) -> str:
        """The address at which pods reach processes of this machine."""
        return str(self.network.host)

    def run(self, *command: str) -> str:
        """Run a command inside the node's namespaces; its output. Raises NodeError."""
        result = subprocess.run(
            self._inside(*command), capture_output=True, text=True, errors="replace", check=False
        )
        if result.returncode != 0:
            raise NodeError(f"{' '.join(command)}: {result.stdout}{result.stderr}")
        return result.stdout

    def ctr(self, *arguments: str) -> str:
        """Ask the node's containerd about kubelet's containers; the output. Raises NodeError."""
        return self.run(
            "ctr", "--address", nodeconfig.CONTAINERD_SOCKET, "-n", "k8s.io", *arguments
        )

    def load_image(self, archive: Path, reference: str) -> None:
        """Load an image archive (`localcluster.images`); pods then name it `reference`."""
        self._progress(f"loading {reference} into {self.name}")
        self.ctr("images", "import", "--all-platforms", str(archive))

    def restart_kubelet(self) -> None:
        """Kill it and start it again; pods go on meanwhile."""
        program = self.programs.pop("kubelet")
        for child in _children(program.pid):  # in the node's process namespace
            os.kill(child, signal.SIGKILL)
        program.wait()
        self._start_kubelet()

    def tag_image(self, reference: str, name: str) -> None:
        """Let pods name a loaded image by another full name too, such as docker.io/library/x:1."""
        self.ctr("images", "tag", "--force", reference, name)

    def _undo(self) -> None:
        self.ledger.undo()
        for program in self.programs.values():
            program.wait()
        self.programs.clear()

    def _prepare(self) -> None:
        """The node's directory, cgroup and configuration files."""
        self.directory = Path(tempfile.gettempdir()) / f"evictune-node-{self.ledger.id}"
        self.cgroup = f"evictune-{self.ledger.id}"
        self.ledger.note("tree", str(self.directory))
        self.ledger.note("cgroup", self.cgroup)
        self.directory.mkdir(mode=0o700)
        for hierarchy in _hierarchies():
            (hierarchy / self.cgroup).mkdir()
        (self.directory / "cni").mkdir()
        authority = self.control_plane.authority
        files = {
            "containerd.toml": nodeconfig.containerd(self.directory, self.base_image.reference),
            "cni/pods.conflist": nodeconfig.cni(self.directory, self.network),
            "kubelet.json": nodeconfig.kubelet(
                self.directory, self.network, authority.certificate_file, self.cgroup
            ),
            "resolv.conf": "# There is no DNS in this cluster.\n",
        }
        for name, text in files.items():
            (self.directory / name).write_text(text)

    def _start(self, name: str, command: Sequence[str | Path]) -> Program:
        log = self.control_plane.directory / "logs" / f"{self.name}-{name}.log"
        program = Program(name, command, log, self.ledger.environment, SOURCE_ROOT)
        self.programs[name] = program
        return program

    def _start_namespaces(self) -> None:
        """Process 1 of the node, in its namespaces."""
        unshare = ["unshare", "--mount", "--pid", "--net", "--fork", "--kill-child"]
        unshare += ["--propagation", "slave", "--mount-proc"]
        init = [sys.executable, "-m", "localcluster.nodeinit", str(self.directory)]
        program = self._start("init", [*unshare, *init])
        ready = self.directory / "ready"
        wait_until(ready.exists, [program], "the node's namespaces are not ready", START_SECONDS)
        self._init_pid = _children(program.pid)[0]

    def _inside(self, *command: str | Path) -> list[str]:
        namespaces = ["--mount", "--pid", "--net"]
        return ["nsenter", f"--target={self._init_pid}", *namespaces, "--", *map(str, command)]

    def _connect(self) -> None:
        """The link between this machine and the node, routes, and the API server's address."""
        link, network = f"ev{self.ledger.id}", self.network
        self.ledger.note("link", link)
        length = network.link.prefixlen
        api_service = self.control_plane.network.api_service
        for command in (
            f"link add {link} type veth peer name eth0 netns {self._init_pid}",
            f"address add {network.host}/{length} dev {link}",
            f"address add {api_service}/32 dev {link}",
            f"link set {link} up",
            f"route add {network.pods} via {network.node} dev {link}",
        ):
            _execute(["ip", *command.split()])
        for command in (
            f"address add {network.node}/{length} dev eth0",
            "link set eth0 up",
            f"route add default via {network.host}",
        ):
            self.run("ip", *command.split())
        forward = [sys.executable, "-m", "localcluster.forward", f"{api_service}:443"]
        self._start("forward", [*forward, f"127.0.0.1:{self.control_plane.port}"])

    def _start_containerd(self) -> None:
        command = ["containerd", f"--config={self.directory}/containerd.toml"]
        program = self._start("containerd", self._inside(*command))
        wait_until(self._containerd_answers, [program], "containerd", START_SECONDS)

    def _containerd_answers(self) -> bool:
        try:
            self.ctr("version")
        except NodeError:
            return False
        return True

    def _start_kubelet(self) -> None:
        server = f"https://{self.control_plane.network.api_service}:443"
        kubeconfig = self.control_plane.authority.client_kubeconfig(
            self.name, server, f"system:node:{self.name}", ["system:nodes"]
        )
        command = [
            str(self._kubelet),
            f"--config={self.directory}/kubelet.json",
            f"--kubeconfig={kubeconfig}",
            f"--root-dir={self.directory}/kubelet",
            f"--cert-dir={self.directory}/kubelet/pki",
            f"--hostname-override={self.name}",
            f"--node-ip={self.network.node}",
        ]
        program = self._start("kubelet", self._inside(*command))
        self._progress(f"waiting for node {self.name}")
        watched = [program, self.programs["containerd"], self.programs["forward"]]
        wait_until(self._ready, watched, f"node {self.name} is not ready", READY_SECONDS)

    def _ready(self) -> bool:
        try:
            node = json.loads(self.control_plane.get(f"/api/v1/nodes/{self.name}"))
        except (OSError, urllib.error.URLError):
            return False
        conditions = node["status"].get("conditions", [])
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _hierarchies() -> list[Path]:
    """The cgroup hierarchies in which a kubelet wants its root: many (v1) or one (v2)."""
    if (CGROUPS / "cgroup.controllers").exists():
        return [CGROUPS]
    # Some distributions link cpu and cpuacct to one directory for both.
    found = {path.resolve() for path in CGROUPS.iterdir() if path.is_dir()}
    return sorted(path for path in found if path.name != "unified")


def _execute(command: list[str]) -> None:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise NodeError(f"{' '.join(command)}: {result.stderr.strip()}")
