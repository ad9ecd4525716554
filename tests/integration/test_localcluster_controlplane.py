"""A real control plane: what it offers, two side by side, and what is left when it ends."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from localcluster import background, controlplane
from localcluster.controlplane import ControlPlane, KubectlError
from localcluster.identity import alive
from localcluster.ledger import entries, sweep
from localcluster.paths import run_directory
from localcluster.processes import ProgramFailed, free_port
from tests.support.machine import traces_of

ROOT = Path(__file__).resolve().parents[2]

OWNER = """
import time
from pathlib import Path
from localcluster.controlplane import ControlPlane
assert "CapEff:\\t0000000000000000" in Path("/proc/self/status").read_text()
with ControlPlane(controller_manager=False, scheduler=False) as control_plane:
    print(control_plane.ledger.id, flush=True)
    time.sleep(600)
"""
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: NAMESPACE}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "localhost/web:1"}]}
"""


@pytest.fixture
def namespace(control_plane: ControlPlane, request: pytest.FixtureRequest) -> str:
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_"))[:60].strip("-")
    control_plane.kubectl("create", "namespace", name)
    return name


def wait_for(condition: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"it did not come about in {seconds:.0f} s"
        time.sleep(0.1)


def start_owner() -> tuple[subprocess.Popen[str], str]:
    """A process that holds a control plane, and the id of its ledger.

    If we are root it gets none of root's capabilities: a control plane needs none.
    """
    drop = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []
    process = subprocess.Popen(
        [*drop, sys.executable, "-c", OWNER], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    ledger_id = process.stdout.readline().strip()
    assert ledger_id, "the owner did not start its control plane"
    assert any(line.startswith("process") for line in traces_of(ledger_id))
    return process, ledger_id


def reaper_of(owner: int) -> int:
    """The process id of an owner's reaper."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"localcluster.reaper" in words and f":{owner}:".encode() in words[-2]:
            return int(path.parent.name)
    raise AssertionError(f"process {owner} has no reaper")


def test_controllers_and_scheduler_work(control_plane: ControlPlane, namespace: str) -> None:
    control_plane.kubectl("apply", "-f", "-", input=DEPLOYMENT.replace("NAMESPACE", namespace))

    def states() -> str:
        path = "{.items[*].status.conditions[?(@.type=='PodScheduled')].reason}"
        return control_plane.kubectl("get", "pods", "-n", namespace, "-o", f"jsonpath={path}")

    # Pods come from the Deployment's controllers; that no node fits is the scheduler's word.
    wait_for(lambda: states() == "Unschedulable Unschedulable")


def test_namespace_deletion_completes(control_plane: ControlPlane, namespace: str) -> None:
    control_plane.kubectl("delete", "namespace", namespace, "--timeout=60s")
    with pytest.raises(KubectlError, match="NotFound"):
        control_plane.kubectl("get", "namespace", namespace)


def test_audit_log_tells_who_did_what(control_plane: ControlPlane, namespace: str) -> None:
    control_plane.kubectl("apply", "-f", "-", input=DEPLOYMENT.replace("NAMESPACE", namespace))
    control_plane.kubectl(
        *("patch", "deployment", "web", "-n", namespace, "--subresource=status"),
        *("--type=merge", "-p", '{"status": {"observedGeneration": 7}}'),
    )
    ours = [
        event
        for event in control_plane.audit_events()
        if event["objectRef"].get("namespace") == namespace
        and event["user"]["username"] == "admin"
        and event["objectRef"]["resource"] == "deployments"
    ]

    writes = [event for event in ours if event["verb"] in ("create", "patch")]
    assert [(event["verb"], event["objectRef"].get("subresource")) for event in writes] == [
        ("create", None),
        ("patch", "status"),
    ]
    assert writes[1]["requestObject"] == {"status": {"observedGeneration": 7}}
    assert {event["responseStatus"]["code"] for event in writes} == {200, 201}


def test_audit_log_holds_no_secret(control_plane: ControlPlane, namespace: str) -> None:
    literal = "--from-literal=key=do-not-log-me"
    control_plane.kubectl("create", "secret", "generic", "one", "-n", namespace, literal)
    assert '"resource":"secrets"' in control_plane.audit_log.read_text()
    assert "do-not-log-me" not in control_plane.audit_log.read_text()
    assert "ZG8tbm90LWxvZy1tZ" not in control_plane.audit_log.read_text()  # the same in base64
    assert control_plane.token not in control_plane.audit_log.read_text()


def test_two_side_by_side(control_plane: ControlPlane, namespace: str) -> None:
    with ControlPlane(controller_manager=False, scheduler=False) as other:
        assert set(other.programs) == {"etcd", "kube-apiserver"}
        assert other.server != control_plane.server
        assert not other.network.block.overlaps(control_plane.network.block)
        with pytest.raises(KubectlError, match="NotFound"):
            other.kubectl("get", "namespace", namespace)
    control_plane.kubectl("get", "namespace", namespace)
    assert traces_of(other.ledger.id) == []


def test_api_server_restarts_in_place(tmp_path: Path) -> None:
    with ControlPlane(controller_manager=False, scheduler=False) as control_plane:
        before, server = control_plane.api_server_pid, control_plane.server
        control_plane.kubectl("create", "configmap", "kept")
        control_plane.stop_api_server()
        with pytest.raises(KubectlError, match="refused"):
            control_plane.kubectl("get", "configmap", "kept")
        control_plane.start_api_server()
        assert control_plane.server == server
        assert control_plane.api_server_pid != before
        control_plane.kubectl("get", "configmap", "kept")


def test_given_directory_keeps_logs_and_no_credentials(tmp_path: Path) -> None:
    with ControlPlane(tmp_path, controller_manager=False, scheduler=False) as control_plane:
        token = control_plane.token
        assert control_plane.kubeconfig.stat().st_mode & 0o077 == 0
    kept = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.name for path in kept} == {"audit.log", "etcd.log", "kube-apiserver.log"}
    assert not any(token in path.read_text() for path in kept)
    assert traces_of(control_plane.ledger.id) == []


def test_port_taken_between_look_and_bind(monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        ports = [taken.getsockname()[1], free_port()]
        monkeypatch.setattr(controlplane, "free_port", lambda: ports.pop(0))
        with ControlPlane(controller_manager=False, scheduler=False) as control_plane:
            assert ports == []
            control_plane.kubectl("get", "namespaces")


def test_program_that_dies_shows_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "etcd"
    broken.write_text("#!/bin/sh\necho the disk is on fire\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setattr(controlplane, "ensure", lambda name, progress=None: broken)
    control_plane = ControlPlane()
    with pytest.raises(ProgramFailed, match=r"etcd ended with status 3[\s\S]*disk is on fire"):
        control_plane.__enter__()
    assert traces_of(control_plane.ledger.id) == []


def test_interrupt_leaves_nothing() -> None:
    process, ledger_id = start_owner()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert traces_of(ledger_id) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_killed_owner_leaves_nothing(number: signal.Signals) -> None:
    process, ledger_id = start_owner()
    process.send_signal(number)
    process.communicate(timeout=30)
    wait_for(lambda: traces_of(ledger_id) == [], 30)


def test_next_start_cleans_up_when_the_reaper_died_too() -> None:
    process, ledger_id = start_owner()
    os.kill(reaper_of(process.pid), signal.SIGKILL)
    process.kill()
    process.communicate(timeout=30)
    assert traces_of(ledger_id)

    sweep()  # as every start does
    assert traces_of(ledger_id) == []


def test_sweep_leaves_the_living_alone(control_plane: ControlPlane) -> None:
    notes = entries(run_directory() / f"{control_plane.ledger.id}.jsonl")
    assert any(kind == "owner" and alive(name) for kind, name in notes)
    assert control_plane.ledger.id not in sweep()
    control_plane.kubectl("get", "namespaces")


def test_commands_up_status_down(tmp_path: Path) -> None:
    name = f"test-{os.getpid()}"

    def command(*words: str) -> subprocess.CompletedProcess[str]:
        full = [sys.executable, "-m", "localcluster", *words, "--name", name]
        return subprocess.run(full, cwd=ROOT, capture_output=True, text=True, check=False)

    assert "is not up" in command("kubeconfig").stderr
    try:
        up = command("up")
        assert up.returncode == 0, up.stderr
        assert "is up already" in command("up").stderr
        status = command("status")
        assert status.stdout.startswith("up: https://127.0.0.1:")
        assert "No resources found" in status.stderr
        assert Path(command("kubeconfig").stdout.strip()).exists()
    finally:
        down = command("down")
    assert down.stdout == "removed\n"
    assert command("status").returncode == 1
    assert not background.directory_of(name).exists()


def test_command_refuses_a_bad_name_in_words() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "localcluster", "up", "--name", "../x"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 1
    assert result.stderr.startswith("error: --name '../x': at most 32 lower case letters")
