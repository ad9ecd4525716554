"""Nodes and pods by the thousand, that run nothing (kwok).

kwok plays the kubelets: pods bound to its nodes become Running and Ready, with an address each.
https://kwok.sigs.k8s.io/docs/user/kwok-in-cluster/
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from localcluster.controlplane import ControlPlane

_LABEL = "localcluster/simulated"
_PODS_A_NODE = 1000


@contextmanager
def simulated_nodes(
    cluster: ControlPlane, count: int = 1, addresses: str = "127.128.0.1/16"
) -> Iterator[None]:
    """Nodes of a control plane for as long as the `with` block lasts.

    `addresses`: from which pods get theirs. On loopback whatever listens there answers for them.
    """
    configuration = cluster.directory / "kwok.yaml"
    configuration.write_text("")
    arguments = [
        f"--kubeconfig={cluster.kubeconfig}",
        # The one of the user's home directory is not ours.
        f"--config={configuration}",
        f"--manage-nodes-with-label-selector={_LABEL}=true",
        f"--cidr={addresses}",
        # Longer than any test: what nodes say of themselves costs writes.
        "--node-lease-duration-seconds=600",
    ]
    program = cluster.start("kwok", arguments)
    try:
        items = [_node(f"simulated-{number}") for number in range(count)]
        nodes = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
        cluster.kubectl("create", "-f", "-", input=nodes)
        ready = ("--for=condition=Ready", "--timeout=60s")
        cluster.kubectl("wait", "node", f"--selector={_LABEL}", *ready)
        yield
    finally:
        program.kill()
        del cluster.programs["kwok"]


def _node(name: str) -> dict[str, Any]:
    size = {"cpu": "1000", "memory": "10Ti", "pods": str(_PODS_A_NODE)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {_LABEL: "true"}},
        "status": {"capacity": size, "allocatable": size},
    }
