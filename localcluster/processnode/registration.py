"""The Node and Lease objects by which the cluster knows that a node exists and lives."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from localcluster.processnode.api import ApiError, ClusterApi, Json
from localcluster.processnode.sandbox import HOST_IP
from localcluster.processnode.status import timestamp

_LEASE_SECONDS = 40
_MAX_PODS = 110


@dataclass(frozen=True)
class NodeObjects:
    """The Node and Lease objects of a node called `name`, whose logs are served on a port."""

    name: str
    logs_port: int = 0

    @property
    def node_path(self) -> str:
        return f"/api/v1/nodes/{self.name}"

    @property
    def lease_path(self) -> str:
        leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
        return f"{leases}/{self.name}"

    def node(self) -> Json:
        labels = {
            "kubernetes.io/hostname": self.name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": _architecture(),
            "evictune.io/process-node": "true",
        }
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.name, "labels": labels},
        }

    def status(self, since: datetime, now: datetime) -> Json:
        capacity = {
            "cpu": str(os.cpu_count() or 1),
            "memory": f"{_memory_kibibytes()}Ki",
            "pods": str(_MAX_PODS),
        }
        return {
            "capacity": capacity,
            "allocatable": capacity,
            "conditions": [_node_condition(*c, since, now) for c in _NODE_CONDITIONS],
            "addresses": [
                {"type": "InternalIP", "address": HOST_IP},
                {"type": "Hostname", "address": self.name},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self.logs_port}},
            "nodeInfo": _node_info(),
        }

    def lease(self, now: datetime) -> Json:
        spec = {
            "holderIdentity": self.name,
            "leaseDurationSeconds": _LEASE_SECONDS,
            "renewTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        }
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self.name},
            "spec": spec,
        }


_NODE_CONDITIONS = (
    ("MemoryPressure", "False", "ProcessNodeHasSufficientMemory"),
    ("DiskPressure", "False", "ProcessNodeHasNoDiskPressure"),
    ("PIDPressure", "False", "ProcessNodeHasSufficientPID"),
    ("Ready", "True", "ProcessNodeReady"),
)


def _node_condition(kind: str, status: str, reason: str, since: datetime, now: datetime) -> Json:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": "pods run as local processes",
        "lastTransitionTime": timestamp(since),
        "lastHeartbeatTime": timestamp(now),
    }


def _node_info() -> Json:
    machine = Path("/etc/machine-id")
    boot = Path("/proc/sys/kernel/random/boot_id")
    identity = machine.read_text().strip() if machine.exists() else ""
    return {
        "machineID": identity,
        "systemUUID": identity,
        "bootID": boot.read_text().strip(),
        "kernelVersion": platform.release(),
        "osImage": platform.platform(),
        "containerRuntimeVersion": "process://1",
        "kubeletVersion": "v0.0.0-processnode",
        "kubeProxyVersion": "",
        "operatingSystem": "linux",
        "architecture": _architecture(),
    }


def _architecture() -> str:
    """The machine's architecture by Go's name, which Kubernetes uses."""
    machine = platform.machine()
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)


def _memory_kibibytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 1024


class Registration:
    """Keeps a node's objects in the API: makes them when missing, else renews them."""

    def __init__(self, api: ClusterApi, name: str, logs_port: int) -> None:
        self._api = api
        self._objects = NodeObjects(name, logs_port)
        self._started_at = datetime.now(UTC)

    def renew(self) -> None:
        """Say once more that the node is ready; raises ApiError."""
        now = datetime.now(UTC)
        status = {"status": self._objects.status(self._started_at, now)}
        try:
            node = self._api.patch(f"{self._objects.node_path}/status", status)
        except ApiError as error:
            if not error.not_found:
                raise
            self._api.create("/api/v1/nodes", self._objects.node())
            node = self._api.patch(f"{self._objects.node_path}/status", status)
        self._renew_lease(node["metadata"]["uid"], now)

    def remove(self) -> None:
        """Take the node out of the cluster, so that nothing is bound to it; raises ApiError."""
        for path in (self._objects.lease_path, self._objects.node_path):
            self._api.delete(path)

    def _renew_lease(self, node_uid: str, now: datetime) -> None:
        lease = self._objects.lease(now)
        try:
            self._api.patch(self._objects.lease_path, lease)
        except ApiError as error:
            if not error.not_found:
                raise
            name = self._objects.name
            owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node_uid}
            lease["metadata"]["ownerReferences"] = [owner]
            self._api.create(self._objects.lease_path.rpartition("/")[0], lease)
