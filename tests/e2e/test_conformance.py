"""The same manifests do the same on a ProcessNode and on a real kubelet.

What is asserted is read through the API server (objects, `kubectl logs`) or at the pod's address.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from localcluster.binaries import ensure
from localcluster.controlplane import ControlPlane, KubectlError
from localcluster.processnode import ProcessNode
from tests.support.local_http import opened

MANIFESTS = Path(__file__).parent / "conformance"
# A kubelet looks at its ConfigMaps once in syncFrequency, 10 s, and its cache is as old again.
PATIENCE = 120.0


@dataclass(frozen=True)
class Target:
    """A node under test."""

    control_plane: ControlPlane
    node_name: str
    image: str


@pytest.fixture(scope="module", params=["process-node", "kubelet"])
def target(request: pytest.FixtureRequest, control_plane: ControlPlane) -> Iterator[Target]:
    if request.param == "kubelet":
        node = request.getfixturevalue("node")
        yield Target(control_plane, node.name, node.base_image.reference)
    else:
        with ProcessNode(control_plane.kubeconfig, "process-node") as process_node:
            yield Target(control_plane, process_node.name, "none")


class Namespace:
    """A namespace of one test's own, with kubectl bound to it."""

    def __init__(self, target: Target, name: str) -> None:
        self.target = target
        self.name = name

    def kubectl(self, *arguments: str, input: str | None = None) -> str:
        return self.target.control_plane.kubectl("-n", self.name, *arguments, input=input)

    def apply(self, manifest: str) -> None:
        text = (MANIFESTS / manifest).read_text()
        text = text.replace("NODE_NAME", self.target.node_name).replace("IMAGE", self.target.image)
        self.kubectl("apply", "-f", "-", input=text)

    def config_map(self, name: str, **data: str) -> None:
        """Create or replace a ConfigMap."""
        document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
        self.kubectl("apply", "-f", "-", input=json.dumps({**document, "data": data}))

    def pod(self, name: str) -> Any:
        return json.loads(self.kubectl("get", "pod", name, "-o", "json"))

    def pods(self) -> list[Any]:
        items: list[Any] = json.loads(self.kubectl("get", "pods", "-o", "json"))["items"]
        return items

    def logs(self, name: str) -> str:
        return self.kubectl("logs", name)

    def wait(self, name: str, met: Callable[[Any], bool]) -> Any:
        """The pod, once it is as it should be."""
        return eventually(lambda: self.pod(name), met)


@pytest.fixture
def namespace(target: Target, request: pytest.FixtureRequest) -> Iterator[Namespace]:
    test = request.node.originalname.removeprefix("test_").replace("_", "-")
    name = f"{test[:40]}-{target.node_name}"
    target.control_plane.kubectl("create", "namespace", name)
    mine = Namespace(target, name)
    eventually(lambda: mine.kubectl("get", "serviceaccounts"), lambda text: "default" in text)
    yield mine
    target.control_plane.kubectl("delete", "namespace", name, "--wait=false")


def eventually(read: Callable[[], Any], met: Callable[[Any], bool]) -> Any:
    """What `read` returns, once it is as it should be."""
    deadline = time.monotonic() + PATIENCE
    while not met(value := read()):
        assert time.monotonic() < deadline, f"still not so after {PATIENCE:g} s: {value}"
        time.sleep(0.3)
    return value


def get(pod: Any, path: str) -> str:
    """GET from a pod's port 8080; '' while nobody answers."""
    try:
        with opened(f"http://{pod['status']['podIP']}:8080{path}") as response:
            return str(response.read().decode())
    except OSError:
        return ""


def main_container(pod: Any) -> Any:
    """The status of the container `main`; {} before there is one."""
    statuses = pod["status"].get("containerStatuses", [])
    return next((s for s in statuses if s["name"] == "main"), {})


def condition(pod: Any, kind: str) -> Any:
    conditions = pod["status"].get("conditions", [])
    return next((c for c in conditions if c["type"] == kind), {})


def is_ready(pod: Any) -> bool:
    return bool(condition(pod, "Ready").get("status") == "True")


def is_running(pod: Any) -> bool:
    return "running" in main_container(pod).get("state", {})


def test_environment_arguments_and_files(namespace: Namespace) -> None:
    namespace.apply("environment.yaml")
    pod = namespace.wait(
        "environment", lambda pod: pod["status"]["phase"] in ("Succeeded", "Failed")
    )
    greeting = "hello environment, blue and $(LATER)"
    files = [
        ("/etc/settings", "deep/colour", "blue"),
        ("/etc/password", "word", "open sesame"),
        ("/etc/about", "labels", 'app="printer"'),
        ("/shared", "note", "prepared"),
    ]
    lines = namespace.logs("environment").splitlines()
    assert lines[:8] == [
        "NAME = environment",
        f"NAMESPACE = {namespace.name}",
        "COLOUR = blue",
        "FROM_shape = round $(LITERAL)",
        "WORD = open sesame",
        f"GREETING = {greeting}",
        "MISSING False",
        f"ADDRESS 3 {namespace.target.node_name}",
    ]
    assert lines[8].startswith(f"arguments ['{greeting} $(NAME) $(UNKNOWN)', ")
    assert lines[9:] == [
        *(f"{Path(path).name} | {content}" for _, path, content in files),
        "token 2",
    ]
    assert pod["status"]["phase"] == "Succeeded"
    (init,) = pod["status"]["initContainerStatuses"]
    assert init["state"]["terminated"]["exitCode"] == 0
    assert condition(pod, "Ready")["reason"] == "PodCompleted"


def test_a_config_map_appears_changes_and_vanishes(namespace: Namespace) -> None:
    namespace.apply("configmap.yaml")
    read = lambda: namespace.logs("watcher").splitlines()  # noqa: E731
    namespace.wait("watcher", is_running)
    eventually(read, lambda lines: len(lines) == 1)
    namespace.config_map("knobs", **{"knobs.json": "first"})
    eventually(read, lambda lines: len(lines) == 2)
    namespace.config_map("knobs", **{"knobs.json": "second"})
    eventually(read, lambda lines: len(lines) == 3)
    namespace.kubectl("delete", "configmap", "knobs")
    lines = eventually(read, lambda lines: len(lines) == 4)
    seen = [line.rpartition(" version=") for line in lines]
    assert [text for text, _, _ in seen] == [
        "link= content=",
        "link=..data/knobs.json content=first",
        "link=..data/knobs.json content=second",
        "link= content=",
    ]
    versions = [version for _, _, version in seen]
    assert len(set(versions)) == 4
    assert all(version.startswith("..20") for version in versions)
    assert main_container(namespace.pod("watcher"))["restartCount"] == 0


def test_a_missing_config_map_holds_a_container_back(namespace: Namespace) -> None:
    namespace.apply("required.yaml")
    pod = namespace.wait("required", lambda pod: "waiting" in main_container(pod).get("state", {}))
    pod = namespace.wait(
        "required",
        lambda pod: main_container(pod)["state"]["waiting"]["reason"] != "ContainerCreating",
    )
    waiting = main_container(pod)["state"]["waiting"]
    assert waiting["reason"] == "CreateContainerConfigError"
    assert waiting["message"] == 'configmap "late" not found'
    assert pod["status"]["phase"] == "Pending"
    namespace.config_map("late", colour="green")
    pod = namespace.wait("required", is_running)
    assert namespace.logs("required").strip() == "green"
    assert main_container(pod)["restartCount"] == 0


def test_a_container_restarts_in_place(namespace: Namespace) -> None:
    namespace.apply("restart.yaml")
    pod = namespace.wait("restart", is_ready)
    container = main_container(pod)
    assert container["restartCount"] == 1
    ended = container["lastState"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (7, "Error")
    assert ended["containerID"] != container["containerID"]
    assert get(pod, "/starts") == "run\n" * 2, "an emptyDir outlives a container"
    assert get(pod, "/own-starts") == "run\n", "a container's own file system does not"


def test_readiness_gates_and_liveness_restarts(namespace: Namespace) -> None:
    namespace.apply("probes.yaml")
    pod = namespace.wait("probes", is_running)
    pod = namespace.wait("probes", lambda pod: main_container(pod).get("started") is True)
    assert not is_ready(pod)
    assert condition(pod, "ContainersReady")["reason"] == "ContainersNotReady"
    namespace.config_map("gate", open="")
    namespace.wait("probes", is_ready)
    namespace.kubectl("delete", "configmap", "gate")
    pod = namespace.wait("probes", lambda pod: not is_ready(pod))
    assert main_container(pod)["restartCount"] == 0
    namespace.config_map("gate", sick="")
    pod = namespace.wait("probes", lambda pod: main_container(pod)["restartCount"] > 0)
    assert main_container(pod)["lastState"]["terminated"]["exitCode"] in (137, 143)


def test_completion(namespace: Namespace) -> None:
    namespace.apply("completion.yaml")
    finished = lambda pod: pod["status"]["phase"] in ("Succeeded", "Failed")  # noqa: E731
    assert namespace.wait("succeeds", finished)["status"]["phase"] == "Succeeded"
    pod = namespace.wait("fails", finished)
    assert pod["status"]["phase"] == "Failed"
    ended = main_container(pod)["state"]["terminated"]
    assert (ended["exitCode"], ended["message"]) == (3, "broken\n")
    assert condition(pod, "Ready")["reason"] == "PodFailed"


def test_termination(namespace: Namespace) -> None:
    namespace.apply("termination.yaml")
    for name in ("polite", "stubborn"):
        eventually(lambda name=name: follow_once(namespace, name), lambda text: "up" in text)
    command = [str(ensure("kubectl")), f"--kubeconfig={namespace.target.control_plane.kubeconfig}"]
    command += ["-n", namespace.name, "logs", "-f", "polite"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as follower:
        seconds = {name: deletion(namespace, name) for name in ("polite", "stubborn")}
        output, _ = follower.communicate(timeout=PATIENCE)
    assert output.splitlines() == ["up", "terminating", "bye"]
    assert 1 <= seconds["polite"] < 30
    assert 3 <= seconds["stubborn"] < 30
    assert namespace.pods() == []


def follow_once(namespace: Namespace, name: str) -> str:
    """A pod's log; '' while there is none."""
    try:
        return namespace.logs(name)
    except KubectlError:
        return ""


def deletion(namespace: Namespace, name: str) -> float:
    """Delete a pod; the seconds until its object is gone."""
    began = time.monotonic()
    namespace.kubectl("delete", "pod", name, "--wait=true", "--timeout=60s")
    return time.monotonic() - began


def test_a_deployment_scales_and_rolls_out(namespace: Namespace) -> None:
    namespace.apply("deployment.yaml")
    status = ("rollout", "status", "deployment/web", "--timeout=120s")
    namespace.kubectl(*status)
    namespace.kubectl("scale", "deployment/web", "--replicas=3")
    namespace.kubectl(*status)
    pods = namespace.pods()
    assert len({pod["status"]["podIP"] for pod in pods}) == 3
    assert [get(pod, "/version") for pod in pods] == ["one\n"] * 3
    namespace.kubectl("set", "env", "deployment/web", "VERSION=two")
    namespace.kubectl(*status)
    pods = eventually(namespace.pods, lambda pods: len(pods) == 3)
    assert [get(pod, "/version") for pod in pods] == ["two\n"] * 3
    namespace.kubectl("scale", "deployment/web", "--replicas=0")
    eventually(namespace.pods, lambda pods: pods == [])
