"""The configuration files of a node's containerd, CNI plugins and kubelet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from localcluster.network import NodeNetwork
from localcluster.system import CNI_PLUGINS

# Inside the node's mount namespace, where /run is its own.
CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
KUBELET_PORT = 10250


def containerd(directory: Path, sandbox_image: str) -> str:
    """containerd's config.toml (version 2, of containerd 1.6)."""
    return f"""\
version = 2
root = "{directory}/containerd"
state = "/run/containerd"

[grpc]
  address = "{CONTAINERD_SOCKET}"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{sandbox_image}"
  # Without CAP_SYS_RESOURCE the kernel refuses to lower a score.
  restrict_oom_score_adj = true

[plugins."io.containerd.grpc.v1.cri".containerd]
  default_runtime_name = "runc"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "{CNI_PLUGINS}"
  conf_dir = "{directory}/cni"
"""


def cni(directory: Path, network: NodeNetwork) -> str:
    """A bridge for the pods; the node forwards between it and its link."""
    ipam = {
        "type": "host-local",
        "ranges": [[{"subnet": str(network.pods)}]],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": f"{directory}/cni-addresses",
    }
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "hairpinMode": True,
        "ipam": ipam,
    }
    document = {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge]}
    return json.dumps(document, indent=2)


def kubelet(directory: Path, network: NodeNetwork, client_ca: Path, cgroup: str) -> str:
    """A KubeletConfiguration (kubelet.config.k8s.io/v1beta1), as JSON."""
    document: dict[str, Any] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": str(network.node),
        "port": KUBELET_PORT,
        "healthzPort": 0,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(client_ca)},
        },
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{cgroup}",
        "failCgroupV1": False,
        "failSwapOn": False,
        # The node shares the machine with everything else: it enforces no totals, and it must
        # neither evict pods nor delete images (they cannot be pulled) when the disk is full.
        "enforceNodeAllocatable": [],
        "localStorageCapacityIsolation": False,
        "evictionHard": {"memory.available": "0%", "nodefs.available": "0%"},
        "imageGCHighThresholdPercent": 100,
        "makeIPTablesUtilChains": False,
        # What is restarted on purpose, again and again, need not wait for up to five minutes.
        "crashLoopBackOff": {"maxContainerRestartPeriod": "10s"},
        # How soon a changed ConfigMap is in a pod's mount.
        "syncFrequency": "1s",
        "nodeStatusUpdateFrequency": "5s",
        "resolvConf": f"{directory}/resolv.conf",
        "volumePluginDir": f"{directory}/volume-plugins",
    }
    return json.dumps(document, indent=2)
