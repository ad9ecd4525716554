"""What a person would look at first after a failure, in files: build/e2e/BEHAVIOUR/."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

from localcluster.controlplane import ControlPlane, KubectlError
from localcluster.paths import SOURCE_ROOT

BEHAVIOURS = SOURCE_ROOT / "tests/e2e"
DIRECTORY = SOURCE_ROOT / "build/e2e"
SHOWN = {
    "pods.txt": "get pods -A -o wide",
    "pods.yaml": "get pods -A -o yaml",
    "workloads.yaml": "get deployments,statefulsets,replicasets -A -o yaml",
    "policies.yaml": "get evp -A -o yaml",
    "configmaps.yaml": "get configmaps -A -l app.kubernetes.io/managed-by=evictune -o yaml",
    "events.txt": "get events -A --sort-by=.metadata.creationTimestamp",
    "leases.yaml": "get leases -A -o yaml",
    "nodes.txt": "describe nodes",
}
SECONDS = 20.0


def behaviour_of(path: Path) -> str:
    """The folder of tests/e2e that a test's file is in, else the file's own name."""
    parts = path.relative_to(BEHAVIOURS).parts
    return parts[0] if len(parts) > 1 else path.stem


def collect(cluster: ControlPlane, behaviour: str, test: str, report: str) -> Path:
    """Write what the cluster shows now, and the test's own report; the directory it went to."""
    directory = _directory(behaviour, test)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "report.txt").write_text(report)
    for name, command in SHOWN.items():
        (directory / name).write_text(_told(cluster, command.split()))
    for namespace, pod, container in _containers(cluster):
        for suffix, extra in (("", []), (".previous", ["--previous"])):
            words = ["logs", "-n", namespace, pod, "-c", container, "--tail=2000", *extra]
            text = _told(cluster, words)
            if text and not (extra and "previous terminated container" in text):
                (directory / f"{namespace}.{pod}.{container}{suffix}.log").write_text(text)
    for log in sorted((cluster.directory / "logs").glob("*.log")):
        (directory / f"cluster.{log.name}").write_bytes(log.read_bytes()[-200_000:])
    return directory


def forget(behaviour: str, test: str) -> None:
    """Remove what an earlier failure of a test left."""
    shutil.rmtree(_directory(behaviour, test), ignore_errors=True)


def _directory(behaviour: str, test: str) -> Path:
    return DIRECTORY / behaviour / "".join(c if c.isalnum() else "-" for c in test)


def _containers(cluster: ControlPlane) -> list[tuple[str, str, str]]:
    """(namespace, pod, container) of every pod, init containers too."""
    text = _told(cluster, ["get", "pods", "-A", "-o", "json"])
    if not text.startswith("{"):
        return []
    return [
        (pod["metadata"]["namespace"], pod["metadata"]["name"], container["name"])
        for pod in json.loads(text)["items"]
        for kind in ("initContainers", "containers")
        for container in pod["spec"].get(kind, ())
    ]


def _told(cluster: ControlPlane, words: list[str]) -> str:
    """What kubectl prints, or why it does not: a failing cluster must not hide the failure."""
    try:
        return cluster.kubectl(*words, timeout=SECONDS)
    except (KubectlError, OSError, subprocess.SubprocessError) as error:
        return f"{error}\n"
