"""A real node: what pods on it can do, and what is left of it when it ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from localcluster import background, building
from localcluster.binaries import ensure
from localcluster.building import Progress, print_progress
from localcluster.controlplane import ControlPlane, KubectlError
from localcluster.images import base_image, build_image
from localcluster.ledger import ledgers
from localcluster.node import Node
from tests.support.machine import Surroundings, traces_of

ROOT = Path(__file__).resolve().parents[2]

POD = """
apiVersion: v1
kind: Pod
metadata: {name: NAME, namespace: NAMESPACE}
spec:
  terminationGracePeriodSeconds: 0
  nodeName: NODE
  containers:
    - name: main
      image: IMAGE
      imagePullPolicy: Never
      command: [sh, -c, "echo hello; exec python3 -m http.server 8000 --directory /data"]
      readinessProbe: {tcpSocket: {port: 8000}, periodSeconds: 1}
      volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, configMap: {name: data, optional: true}}]
"""
ASK_API_SERVER = """
import os, ssl, urllib.request
account = "/var/run/secrets/kubernetes.io/serviceaccount/"
host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
request = urllib.request.Request(f"https://{host}:{port}/apis/apps/v1/namespaces/PLACE/deployments")
request.add_header("Authorization", "Bearer " + open(account + "token").read())
context = ssl.create_default_context(cafile=account + "ca.crt")
print(urllib.request.urlopen(request, context=context, timeout=10).status)
"""


class Pods:
    """Pods in a namespace of one test."""

    def __init__(self, control_plane: ControlPlane, namespace: str) -> None:
        self.control_plane = control_plane
        self.namespace = namespace

    def kubectl(self, *arguments: str, input: str | None = None) -> str:
        return self.control_plane.kubectl("-n", self.namespace, *arguments, input=input)

    def start(self, name: str, node: Node, image: str = "") -> str:
        """Start POD on the node; its address once it is ready."""
        text = POD.replace("NAMESPACE", self.namespace).replace("NAME", name)
        text = text.replace("NODE", node.name)
        image = image or node.base_image.reference
        self.kubectl("apply", "-f", "-", input=text.replace("IMAGE", image))
        self.kubectl("wait", "pod", name, "--for=condition=Ready", "--timeout=120s")
        return self.kubectl("get", "pod", name, "-o", "jsonpath={.status.podIP}")


@pytest.fixture
def pods(control_plane: ControlPlane, request: pytest.FixtureRequest) -> Pods:
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_"))[:60].strip("-")
    control_plane.kubectl("create", "namespace", name)
    account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
    wait_for(lambda: exists(control_plane, account), 60)
    return Pods(control_plane, name)


def exists(control_plane: ControlPlane, path: str) -> bool:
    try:
        control_plane.get(path)
    except OSError:
        return False
    return True


def wait_for(condition: Callable[[], object], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"it did not come about in {seconds:.0f} s"
        time.sleep(0.2)


def fetch(url: str) -> str:
    """The body of a URL, or the error as text."""
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            body: bytes = response.read()
    except OSError as error:
        return str(error)
    return body.decode()


def test_pod_runs_logs_and_answers_from_this_machine(node: Node, pods: Pods) -> None:
    address = pods.start("one", node)
    assert "Directory listing" in fetch(f"http://{address}:8000/")
    assert pods.kubectl("logs", "one").startswith("hello")
    assert pods.kubectl("exec", "one", "--", "cat", "/proc/1/comm") == "python3\n"


def test_config_map_reaches_a_running_pod(node: Node, pods: Pods) -> None:
    url = f"http://{pods.start('one', node)}:8000/key"
    assert "404" in fetch(url)
    pods.kubectl("create", "configmap", "data", "--from-literal=key=first")
    wait_for(lambda: fetch(url) == "first", 60)
    pods.kubectl("patch", "configmap", "data", "-p", '{"data": {"key": "second"}}')
    wait_for(lambda: fetch(url) == "second", 60)
    pods.kubectl("delete", "configmap", "data")
    wait_for(lambda: "404" in fetch(url), 60)


def test_pod_reaches_the_api_server_as_its_service_account(node: Node, pods: Pods) -> None:
    pods.start("one", node)
    script = ASK_API_SERVER.replace("PLACE", pods.namespace)
    with pytest.raises(KubectlError, match="403"):
        pods.kubectl("exec", "one", "--", "python3", "-c", script)
    account = f"--serviceaccount={pods.namespace}:default"
    pods.kubectl("create", "rolebinding", "view", "--clusterrole=view", account)
    assert pods.kubectl("exec", "one", "--", "python3", "-c", script) == "200\n"


def test_pod_reaches_this_machine_at_the_host_address(node: Node, pods: Pods) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"from the host")

    pods.start("one", node)
    server = HTTPServer((node.host_address, 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        url = f"http://{node.host_address}:{server.server_port}/"
        read = f"import urllib.request as u; print(u.urlopen('{url}', timeout=5).read().decode())"
        assert pods.kubectl("exec", "one", "--", "python3", "-c", read) == "from the host\n"
    finally:
        server.shutdown()
        server.server_close()


def test_image_built_from_a_dockerfile(node: Node, pods: Pods, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("built in")
    (tmp_path / "Dockerfile").write_text(
        "ARG BASE_IMAGE=docker.io/library/python:3.12-slim\nFROM ${BASE_IMAGE}\n"
        "COPY file /file\nRUN python3 -c 'print(6 * 7)' > /answer\n"
    )
    image = build_image(
        tmp_path / "Dockerfile",
        tmp_path,
        "localhost/evictune/test:1",
        {"BASE_IMAGE": node.base_image.reference},
        archive=tmp_path / "image.tar",
    )
    node.load_image(image.archive, image.reference)
    pods.start("one", node, image.reference)
    assert pods.kubectl("exec", "one", "--", "cat", "/file", "/answer") == "built in42\n"


def test_an_interrupted_build_leaves_nothing_in_the_way_of_the_next(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its working container stood on an image that the next build then could not prune."""
    monkeypatch.setattr(building, "PROGRESS_SECONDS", 0.5)
    copied = f"FROM {node.base_image.reference}\nCOPY file /file\n"
    seconds = f"{600 + time.time() % 1:f}"
    (tmp_path / "file").write_text(seconds)

    def interrupt(_: str) -> None:
        if subprocess.run(["pgrep", "-f", f"sleep {seconds}"], check=False).returncode == 0:
            raise KeyboardInterrupt

    def build(steps: str, progress: Progress = print_progress) -> None:
        (tmp_path / "Dockerfile").write_text(copied + steps)
        archive = tmp_path / "image.tar"
        tag = "localhost/evictune/test:interrupted"
        build_image(tmp_path / "Dockerfile", tmp_path, tag, archive=archive, progress=progress)

    with pytest.raises(KeyboardInterrupt):
        build(f"RUN sleep {seconds}\n", interrupt)
    (tmp_path / "file").write_text("built anew")
    build("RUN true\n")


def test_second_node_ends_without_a_trace(
    control_plane: ControlPlane, node: Node, pods: Pods
) -> None:
    first = pods.start("first", node)
    before = Surroundings.now()
    with Node(control_plane, "node-1") as second:
        address = pods.start("second", second)
        assert "Directory listing" in fetch(f"http://{address}:8000/")
        pods.kubectl("logs", "second")
    assert traces_of(second.ledger.id) == []
    assert Surroundings.now() == before
    assert control_plane.kubectl("get", "nodes", "-o", "name") == f"node/{node.name}\n"
    # The one beside it goes on: its pod answers and its kubelet still hears the API server.
    assert "Directory listing" in fetch(f"http://{first}:8000/")
    pods.start("third", node)


def test_cluster_of_the_command_line_leaves_nothing_when_its_keeper_is_killed() -> None:
    before = Surroundings.now()
    name = f"test-{os.getpid()}"
    try:
        localcluster("up", "--node", "--name", name)
        state = background.state_of(name)
        assert state is not None
        assert re.search(r"node-0 +Ready", localcluster("status", "--name", name))
        ids = [path.stem for path, notes in ledgers() if ("owner", state.keeper) in notes]
        assert len(ids) == 2  # the control plane's and the node's
        run_a_pod(Path(state.kubeconfig), state.node)
        assert sum("cgroup" in trace for one in ids for trace in traces_of(one)) > 2

        os.kill(int(state.keeper.split(":")[1]), signal.SIGKILL)
        wait_for(lambda: [trace for one in ids for trace in traces_of(one)] == [], 120)
    finally:
        localcluster("down", "--name", name)
    assert Surroundings.now() == before


def localcluster(*words: str) -> str:
    """Run `python -m localcluster`; its output."""
    command = [sys.executable, "-m", "localcluster", *words]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


def run_a_pod(kubeconfig: Path, node: str) -> None:
    kubectl = [str(ensure("kubectl")), f"--kubeconfig={kubeconfig}"]
    pod = POD.replace("NAMESPACE", "default").replace("NAME", "one").replace("NODE", node)
    pod = pod.replace("IMAGE", base_image().reference)
    subprocess.run([*kubectl, "apply", "-f", "-"], input=pod, text=True, check=True)
    wait = ["wait", "pod", "one", "--for=condition=Ready", "--timeout=120s"]
    subprocess.run([*kubectl, *wait], check=True)
