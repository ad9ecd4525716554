"""All parts of the closed loop on one real node, for the end-to-end tests.

The engine is a pod (its plugin copied by an init container), the operator a pod from the project's
Dockerfile that Helm installed with the project's chart; a Prometheus on this machine scrapes them.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from demo.model import cached_model
from localcluster.binaries import ensure
from localcluster.controlplane import ControlPlane, KubectlError
from localcluster.node import Node
from tests.support import vllm_pod
from tests.support.images import ROOT, operator_image, plugin_image
from tests.support.objects import Object, Objects
from tests.support.prometheus import Prometheus, prometheus
from tests.support.vllm_pod import Engine

NAMESPACE = "serving"
WORKLOAD = "chat"
CONFIG_MAP = f"evictune-knobs-deployment-{WORKLOAD}"
RELEASE = "evictune"
OPERATOR_USER = f"system:serviceaccount:{RELEASE}:{RELEASE}"
WRITES = {"create", "update", "patch", "delete", "deletecollection"}
SCRAPE_INTERVAL = "1s"
ENGINE_SECONDS = 480.0
OPERATOR_SECONDS = 120.0


@dataclass
class Stack:
    """The parts, with what tests ask of them."""

    cluster: ControlPlane
    node: Node
    prometheus: Prometheus

    @property
    def engine(self) -> Engine:
        """The engine at its pod's address."""
        return Engine(self.pod()["status"]["podIP"])

    def objects(self, namespace: str = NAMESPACE) -> Objects:
        """What is in a namespace."""
        return Objects(self.cluster, namespace)

    def pod(self) -> Object:
        """The engine's one pod that is not leaving."""
        pods = self.objects().all("pod")
        assert len(pods) == 1, [pod["metadata"]["name"] for pod in pods]
        return pods[0]

    def identity(self) -> tuple[str, int]:
        """UID of the engine's pod, and how often its container was restarted."""
        pod = self.pod()
        return pod["metadata"]["uid"], pod["status"]["containerStatuses"][0]["restartCount"]

    def kill(self, pod: Object) -> None:
        """SIGKILL to a pod's only container, as the kernel does when memory runs out."""
        self.node.ctr("tasks", "kill", "--signal", "SIGKILL", container_of(pod))

    def kill_operator(self) -> None:
        """SIGKILL to the operator, and another pod in its place: kubelet would let it wait longer
        each time.
        """
        (pod,) = self.objects(RELEASE).all("pod")
        self.kill(pod)
        name = pod["metadata"]["name"]
        self.cluster.kubectl("delete", "pod", name, "-n", RELEASE, "--wait=false")

    def apply_policy(self, policy: Mapping[str, Any]) -> None:
        """Create or change a policy."""
        self.cluster.kubectl("apply", "-f", "-", input=json.dumps(policy))

    def patch_policy(self, name: str, spec: Mapping[str, Any]) -> None:
        """Change a policy's spec."""
        patch = json.dumps({"spec": spec})
        self.cluster.kubectl("patch", "evp", name, "-n", NAMESPACE, "--type=merge", "-p", patch)

    def status(self, name: str) -> Object:
        """The status of a policy."""
        found: Object = self.objects().get("evp", name).get("status", {})
        return found

    def document(self) -> Object | None:
        """The knob document in the cluster, if there is one."""
        return self.objects().document(CONFIG_MAP)

    def scale_operator(self, replicas: int) -> None:
        """Run the operator, or let it stay away; returns when it is so."""
        deployment = f"deployment/{RELEASE}"
        self.cluster.kubectl("scale", deployment, "-n", RELEASE, f"--replicas={replicas}")
        self.wait_for(
            f"{replicas} pods of the operator",
            lambda: len(self.objects(RELEASE).all("pod", leaving=True)) == replicas,
            OPERATOR_SECONDS,
        )
        self.cluster.kubectl("rollout", "status", deployment, "-n", RELEASE, "--timeout=120s")
        self.scrape()

    def scrape(self) -> None:
        """Let Prometheus know the pods that there are now."""
        pods = [pod for name in (NAMESPACE, RELEASE) for pod in self.objects(name).all("pod")]
        self.prometheus.scrape(pods)

    def stop(self) -> None:
        """Delete the namespaces of engine and operator: others use their names."""
        self.cluster.kubectl("delete", "namespace", NAMESPACE, RELEASE, "--timeout=120s")

    def operator_requests(self) -> list[Object]:
        """What the operator's service account has asked of the API server so far."""
        events = self.cluster.audit_events()
        return [event for event in events if event["user"]["username"] == OPERATOR_USER]

    def operator_writes(self) -> list[Object]:
        """Those of its requests that write."""
        return [event for event in self.operator_requests() if event["verb"] in WRITES]

    def ticks(self, policy: str) -> int:
        """How often the operator has looked at a policy, by its own series in Prometheus."""
        selector = f'evictune_tick_seconds_count{{namespace="{NAMESPACE}",policy="{policy}"}}'
        found = self.prometheus.query(f"sum({selector})")
        return int(float(found[0]["value"][1])) if found else 0

    def wait_for(self, what: str, reached: Callable[[], object], seconds: float) -> None:
        """Poll until `reached` is true; if that takes too long, fail with what is known."""
        deadline = time.monotonic() + seconds
        while not reached():
            if time.monotonic() > deadline:
                raise AssertionError(f"{what}: not within {seconds:.0f} s\n{self.diagnosis()}")
            time.sleep(0.5)

    def diagnosis(self) -> str:
        """What a person would look at first."""
        commands = [
            ["get", "pods", "-A", "-o", "wide"],
            ["get", "evp", "-A", "-o", "yaml"],
            ["get", "configmap", CONFIG_MAP, "-n", NAMESPACE, "-o", "yaml", "--ignore-not-found"],
            ["logs", f"deployment/{RELEASE}", "-n", RELEASE, "--tail=60"],
            ["logs", f"deployment/{WORKLOAD}", "-n", NAMESPACE, "--tail=30"],
            ["get", "events", "-A"],
        ]
        return "\n".join(self._told(command) for command in commands)

    def _told(self, command: list[str]) -> str:
        try:
            return f"$ kubectl {' '.join(command)}\n{self.cluster.kubectl(*command)}"
        except (KubectlError, subprocess.TimeoutExpired) as error:
            return str(error)


def container_of(pod: Object) -> str:
    """What containerd calls a pod's only container."""
    (status,) = pod["status"]["containerStatuses"]
    name: str = status["containerID"].removeprefix("containerd://")
    return name


def start_engine(cluster: ControlPlane, node: Node, plugin_image: str) -> None:
    """The engine that the behaviours share."""
    manifest = vllm_pod.deployment(NAMESPACE, WORKLOAD, node.base_image.reference, cached_model())
    apply_wired(cluster, manifest, "--plugin-image", plugin_image)


@contextmanager
def closed_loop(
    cluster: ControlPlane,
    node: Node,
    directory: Path,
    start: Callable[[ControlPlane, Node, str], None] = start_engine,
) -> Iterator[Stack]:
    """Bring up engine, Prometheus and operator; all are ready. start: given the plugin's image."""
    operator, plugin = operator_image(), plugin_image()
    for image in (operator, plugin):
        node.load_image(image.archive, image.reference)
    for namespace in (NAMESPACE, RELEASE):
        cluster.kubectl("create", "namespace", namespace)
    start(cluster, node, plugin.reference)
    with prometheus(node.host_address, directory / "prometheus", SCRAPE_INTERVAL) as metrics:
        stack = Stack(cluster, node, metrics)
        install_operator(cluster, operator.reference, metrics.url)
        rollout(stack, f"deployment/{RELEASE}", RELEASE, OPERATOR_SECONDS)
        rollout(stack, f"deployment/{WORKLOAD}", NAMESPACE, ENGINE_SECONDS)
        stack.scrape()
        yield stack


def apply_wired(cluster: ControlPlane, manifest: Object, *options: str) -> None:
    """A workload as its owner wrote it, wired by the command that does so, and applied."""
    wired = subprocess.run(
        [sys.executable, "-m", "evictune.cli", "wire", "-", *options],
        cwd=ROOT / "operator",
        input=yaml.safe_dump(manifest),
        capture_output=True,
        text=True,
        check=False,
    )
    assert wired.returncode == 0, wired.stderr
    cluster.kubectl("apply", "-f", "-", input=wired.stdout)


def install_operator(cluster: ControlPlane, image: str, prometheus_url: str) -> None:
    """`helm install`, as the chart's README says."""
    repository, _, tag = image.rpartition(":")
    values = {
        "image": {"repository": repository, "tag": tag, "pullPolicy": "Never"},
        "sources": {"default": {"prometheus": {"url": prometheus_url, "timeout": "5s"}}},
    }
    command = [str(ensure("helm")), "install", RELEASE, str(ROOT / "charts/evictune")]
    command += ["--namespace", RELEASE, "--kubeconfig", str(cluster.kubeconfig), "--values", "-"]
    installed = subprocess.run(
        command, input=yaml.safe_dump(values), capture_output=True, text=True, check=False
    )
    assert installed.returncode == 0, installed.stderr


def rollout(stack: Stack, workload: str, namespace: str, seconds: float) -> None:
    """Wait until a workload is ready."""
    limit = f"--timeout={seconds:.0f}s"
    try:
        stack.cluster.kubectl(
            "rollout", "status", workload, "-n", namespace, limit, timeout=seconds + 10
        )
    except KubectlError as error:
        raise AssertionError(f"{error}\n{stack.diagnosis()}") from error
