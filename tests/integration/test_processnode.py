"""ProcessNode with a real API server: what it refuses, and that nothing survives its end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from localcluster.controlplane import ControlPlane, KubectlError
from localcluster.processnode import ProcessNode, ProcessNodeError

PATIENCE = 60.0
ROOT = Path(__file__).resolve().parents[2]
# Writes its process id and that of a daemon of its own, then goes on. $$$$ is a shell's $$, for
# the node takes $$ as an escaped dollar, as kubelet does; $(STATE) is the mounted volume.
FAMILY = (
    "setsid sh -c 'echo $$$$ > $(STATE)/daemon; exec sleep 1000' & echo $$$$ > $(STATE)/main; wait"
)


def pod(name: str, node: str, script: str, **spec: Any) -> str:
    """The manifest of a pod that is bound to a node and runs a shell script."""
    container = {
        "name": "main",
        "image": "none",
        "command": ["sh", "-c", script],
        "env": [{"name": "STATE", "value": "/state"}],
        "volumeMounts": [{"name": "state", "mountPath": "/state"}],
    }
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {
                "nodeName": node,
                "terminationGracePeriodSeconds": 1,
                "containers": [container],
                "volumes": [{"name": "state", "emptyDir": {}}],
                **spec,
            },
        }
    )


def on_host(directory: Path) -> dict[str, Any]:
    """A pod's volumes, with /state at a directory of the test's."""
    return {"volumes": [{"name": "state", "hostPath": {"path": str(directory)}}]}


def eventually(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not so after {PATIENCE:g} s"
        time.sleep(0.1)
    return value


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def family(directory: Path) -> list[int]:
    """The process ids that FAMILY wrote; empty until all are there."""
    files = [directory / "main", directory / "daemon"]
    texts = [file.read_text().strip() if file.exists() else "" for file in files]
    return [int(text) for text in texts] if all(texts) else []


@pytest.fixture(autouse=True)
def no_pods_left(control_plane: ControlPlane) -> Iterator[None]:
    """Every test starts with no pod and leaves none; pods need a service account."""
    eventually(lambda: "default" in control_plane.kubectl("get", "serviceaccounts"))
    yield
    control_plane.kubectl("delete", "pods", "--all", "--force", "--grace-period=0")


def get_pod(control_plane: ControlPlane, name: str) -> Any:
    return json.loads(control_plane.kubectl("get", "pod", name, "-o", "json"))


def running(control_plane: ControlPlane, name: str) -> Any:
    """The status of the pod's container, once it runs."""

    def read() -> Any:
        statuses = get_pod(control_plane, name)["status"].get("containerStatuses", [])
        return next((s for s in statuses if "running" in s["state"]), None)

    return eventually(read)


def test_the_node_is_ready_schedulable_and_gone_afterwards(control_plane: ControlPlane) -> None:
    with ProcessNode(control_plane.kubeconfig, "pn-register"):
        manifest = json.loads(pod("scheduled", "", "exec sleep 1000"))
        del manifest["spec"]["nodeName"]
        control_plane.kubectl("apply", "-f", "-", input=json.dumps(manifest))
        running(control_plane, "scheduled")
        node = json.loads(control_plane.kubectl("get", "node", "pn-register", "-o", "json"))
        lease = control_plane.kubectl("get", "lease", "-n", "kube-node-lease", "pn-register")
        assert "pn-register" in lease
        labels = node["metadata"]["labels"]
        assert labels["kubernetes.io/hostname"] == "pn-register"
        assert {"kubernetes.io/os", "kubernetes.io/arch"} <= set(labels)
        assert int(node["status"]["capacity"]["cpu"]) == os.cpu_count()
        assert not node["spec"].get("taints")
    with pytest.raises(KubectlError, match="not found"):
        control_plane.kubectl("get", "node", "pn-register")
    ended = get_pod(control_plane, "scheduled")["status"]
    assert (ended["phase"], ended["reason"]) == ("Failed", "Terminated")


def test_an_unsupported_field_is_refused_by_name(control_plane: ControlPlane) -> None:
    with ProcessNode(control_plane.kubeconfig, "pn-refuse"):
        bad = pod("bad", "pn-refuse", "true", securityContext={"runAsUser": 1000})
        control_plane.kubectl("apply", "-f", "-", input=bad)
        status = eventually(
            lambda: (s := get_pod(control_plane, "bad")["status"])["phase"] == "Failed" and s
        )
        assert status["reason"] == "UnsupportedPodField"
        assert status["message"] == (
            "spec.securityContext.runAsUser is not supported by ProcessNode: "
            "remove it or use a real node"
        )
        control_plane.kubectl("delete", "pod", "bad", "--wait=true", "--timeout=30s")


def test_pods_outlive_a_restart_of_the_api_server(control_plane: ControlPlane) -> None:
    with ProcessNode(control_plane.kubeconfig, "pn-restart"):
        control_plane.kubectl(
            "apply", "-f", "-", input=pod("before", "pn-restart", "exec sleep 1000")
        )
        container = running(control_plane, "before")
        control_plane.restart_api_server()
        control_plane.kubectl("apply", "-f", "-", input=pod("after", "pn-restart", "sleep 1000"))
        running(control_plane, "after")
        assert running(control_plane, "before") == container
        control_plane.kubectl("delete", "pod", "before", "after", "--wait=true", "--timeout=60s")


def test_a_container_that_ends_while_the_api_server_is_away_is_restarted(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    with ProcessNode(control_plane.kubeconfig, "pn-away"):
        manifest = pod("alone", "pn-away", FAMILY, **on_host(tmp_path))
        control_plane.kubectl("apply", "-f", "-", input=manifest)
        pids = eventually(lambda: family(tmp_path))
        running(control_plane, "alone")
        control_plane.stop_api_server()
        try:
            os.kill(pids[0], signal.SIGKILL)
            eventually(lambda: family(tmp_path) not in ([], pids))
        finally:
            control_plane.start_api_server()
        eventually(lambda: running(control_plane, "alone")["restartCount"] == 1)


def test_killing_the_node_leaves_no_process_and_its_next_life_goes_on(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    state, directory = tmp_path / "state", tmp_path / "node"
    state.mkdir()
    with ProcessNode(control_plane.kubeconfig, "pn-crash", directory) as node:
        manifest = pod("survivor", "pn-crash", FAMILY, **on_host(state))
        control_plane.kubectl("apply", "-f", "-", input=manifest)
        pids = eventually(lambda: family(state))
        container = running(control_plane, "survivor")
        os.kill(node.pid, signal.SIGKILL)
        eventually(lambda: not any(alive(pid) for pid in pids))
    assert not (directory / "pods").exists()
    with ProcessNode(control_plane.kubeconfig, "pn-crash", directory):
        eventually(lambda: running(control_plane, "survivor")["restartCount"] == 1)
        status = running(control_plane, "survivor")
        assert status["containerID"] != container["containerID"]
        assert status["lastState"]["terminated"]["reason"] == "ContainerStatusUnknown"
        pids = eventually(lambda: (now := family(state)) != pids and now)
    assert not any(alive(pid) for pid in pids)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_when_the_owner_is_ended(
    control_plane: ControlPlane, tmp_path: Path, number: signal.Signals
) -> None:
    """SIGINT goes to the owner's whole process group, as Ctrl-C in a terminal does."""
    name = f"pn-owner-{number.name.lower()}"
    script = f"""
import time
from pathlib import Path
from localcluster.processnode import ProcessNode
with ProcessNode(Path({str(control_plane.kubeconfig)!r}), {name!r}) as node:
    print(node.directory, flush=True)
    time.sleep(1000)
"""
    owner = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        start_new_session=True,
    )
    assert owner.stdout is not None
    directory = Path(owner.stdout.readline().strip())
    manifest = pod("orphan", name, FAMILY, **on_host(tmp_path))
    control_plane.kubectl("apply", "-f", "-", input=manifest)
    pids = eventually(lambda: family(tmp_path))
    assert directory.is_dir()
    os.killpg(owner.pid, number) if number is signal.SIGINT else owner.send_signal(number)
    owner.wait(PATIENCE)
    owner.stdout.close()
    eventually(lambda: not any(alive(pid) for pid in pids))
    eventually(lambda: not directory.exists())


def test_two_nodes_side_by_side_use_the_same_port(control_plane: ControlPlane) -> None:
    with (
        ProcessNode(control_plane.kubeconfig, "pn-one"),
        ProcessNode(control_plane.kubeconfig, "pn-two"),
    ):
        script = "exec python3 -m http.server --bind $(POD_IP) 8000"
        env = [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]
        for node in ("pn-one", "pn-two"):
            manifest = json.loads(pod(f"on-{node}", node, script))
            container = manifest["spec"]["containers"][0]
            container["env"] += env
            container["readinessProbe"] = {"httpGet": {"port": 8000}, "periodSeconds": 1}
            control_plane.kubectl("apply", "-f", "-", input=json.dumps(manifest))
        control_plane.kubectl(
            "wait", "--for=condition=Ready", "pod", "--all", f"--timeout={PATIENCE:g}s"
        )


def test_logs_are_files_and_kept_in_a_directory_that_was_given(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    with ProcessNode(control_plane.kubeconfig, "pn-logs", tmp_path) as node:
        manifest = pod("talker", "pn-logs", "echo one; echo two >&2; exec sleep 1000")
        control_plane.kubectl("apply", "-f", "-", input=manifest)
        running(control_plane, "talker")
        log = node.log("default", "talker", "main")
        eventually(lambda: log.read_text() == "one\ntwo\n")
        assert control_plane.kubectl("logs", "talker", "--tail=1") == "two\n"
        with pytest.raises(KubectlError, match="previous not supported"):
            control_plane.kubectl("logs", "talker", "--previous")
    assert log.read_text() == "one\ntwo\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["logs", "node.log"]


def test_a_node_that_cannot_start_says_why(tmp_path: Path) -> None:
    missing = tmp_path / "no-such-kubeconfig"
    with (
        pytest.raises(ProcessNodeError, match="no-such-kubeconfig") as caught,
        ProcessNode(missing, "pn-wrong", tmp_path),
    ):
        pytest.fail("it started")
    assert "Traceback" not in str(caught.value)
