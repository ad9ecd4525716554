"""An account of its own for an operator under test: its rights are real, and its writes known."""

from __future__ import annotations

from pathlib import Path

import yaml

from localcluster.controlplane import ControlPlane


def service_account(cluster: ControlPlane, namespace: str, name: str, directory: Path) -> Path:
    """A kubeconfig, in `directory`, of a ServiceAccount made now; it has no rights yet."""
    existing = cluster.kubectl("-n", namespace, "get", "serviceaccounts", "-o", "name").split()
    if f"serviceaccount/{name}" not in existing:
        cluster.kubectl("-n", namespace, "create", "serviceaccount", name)
    token = cluster.kubectl("-n", namespace, "create", "token", name).strip()
    authority = {"certificate-authority": str(cluster.ca_file), "server": cluster.server}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": authority}],
        "users": [{"name": name, "user": {"token": token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": name}}],
        "current-context": "test",
    }
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}.kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path


def allow_all(cluster: ControlPlane, namespace: str, name: str) -> None:
    """Every right within the namespace."""
    _bind(cluster, namespace, name, "clusterrole=cluster-admin")


def allow(cluster: ControlPlane, namespace: str, name: str, verbs: str, resource: str) -> None:
    """These verbs, with commas between them, of one resource within the namespace."""
    role = ("create", "role", name, f"--verb={verbs}", f"--resource={resource}")
    cluster.kubectl("-n", namespace, *role)
    _bind(cluster, namespace, name, f"role={name}")


def _bind(cluster: ControlPlane, namespace: str, name: str, role: str) -> None:
    account = f"--serviceaccount={namespace}:{name}"
    cluster.kubectl("-n", namespace, "create", "rolebinding", name, f"--{role}", account)
