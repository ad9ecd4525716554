"""SimulatedNodes: nodes and pods by the thousand, that run nothing (kwok).

kwok plays the kubelets: pods bound to its nodes become Running and Ready, with an address each.
https://kwok.sigs.k8s.io/docs/user/kwok-in-cluster/
"""

from __future__ import annotations

import json
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from localcluster.binaries import ensure
from localcluster.controlplane import ControlPlane
from localcluster.processes import Program

_LABEL = "localcluster/simulated"
_PODS_A_NODE = 1000


class SimulatedNodes:
    """Nodes of a control plane for as long as the `with` block lasts.

    `addresses`: from which pods get theirs. On loopback whatever listens there answers for them.
    """

    def __init__(
        self, cluster: ControlPlane, count: int = 1, addresses: str = "127.128.0.1/16"
    ) -> None:
        self._cluster = cluster
        self._count = count
        self._addresses = addresses
        self._program: Program | None = None

    def __enter__(self) -> Self:
        configuration = self._cluster.directory / "kwok.yaml"
        configuration.write_text("")
        command: list[str | Path] = [
            ensure("kwok"),
            f"--kubeconfig={self._cluster.kubeconfig}",
            # The one of the user's home directory is not ours.
            f"--config={configuration}",
            f"--manage-nodes-with-label-selector={_LABEL}=true",
            f"--cidr={self._addresses}",
            # Longer than any test: what nodes say of themselves costs writes.
            "--node-lease-duration-seconds=600",
        ]
        log = self._cluster.directory / "logs" / "kwok.log"
        self._program = Program("kwok", command, log, self._cluster.ledger.environment)
        self._cluster.programs["kwok"] = self._program
        items = [_node(f"simulated-{number}") for number in range(self._count)]
        nodes = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
        self._cluster.kubectl("create", "-f", "-", input=nodes)
        self._cluster.kubectl(
            "wait", "--for=condition=Ready", "node", f"--selector={_LABEL}", "--timeout=60s"
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._cluster.programs.pop("kwok", None) and self._program:
            self._program.kill()


def _node(name: str) -> dict[str, Any]:
    size = {"cpu": "1000", "memory": "10Ti", "pods": str(_PODS_A_NODE)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {_LABEL: "true"}},
        "status": {"capacity": size, "allocatable": size},
    }
