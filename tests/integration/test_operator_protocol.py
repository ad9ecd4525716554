"""The write protocol's crash table: docs/explanation/write-protocol.md, a row a test.

The operator is a real process before a real API server, with a proxy between them that holds one
request. While it is held, the operator is killed with SIGKILL; then a new one is started.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from localcluster.controlplane import ControlPlane
from tests.support.fake_engines import FakeDeployment
from tests.support.holding_proxy import HoldingProxy, Request, Stage
from tests.support.operator_process import OperatorProcess, eventually
from tests.support.operator_scene import Scene, install_crd, policy

# As a kubelet's update of a mount does, so that writing and acknowledging are two steps.
MOUNT_DELAY = 2.5
WHOLE = ["Intended", "Written", "Acknowledged", "Kept"]


@pytest.fixture(scope="module")
def cluster(control_plane: ControlPlane) -> ControlPlane:
    install_crd(control_plane)
    return control_plane


@pytest.fixture
def scene(cluster: ControlPlane) -> Iterator[Scene]:
    with Scene(cluster) as made:
        yield made


def status_of(request: Request) -> dict[str, Any]:
    """The status that a request patches; empty for other requests."""
    if request.method != "PATCH" or "/evictionpolicies/" not in request.path:
        return {}
    status: dict[str, Any] = json.loads(request.body).get("status") or {}
    return status


def in_phase(phase: str) -> Callable[[Request], bool]:
    """The status write that brings a change into a phase."""
    return lambda request: (status_of(request).get("pending") or {}).get("phase") == phase


def verdict(request: Request) -> bool:
    """The status write that keeps the change."""
    return any(each["reason"] == "Kept" for each in status_of(request).get("decisions") or ())


def document(request: Request) -> bool:
    """The write of the knob document."""
    return request.method == "PATCH" and "/configmaps/evictune-knobs-" in request.path


def event(reason: str) -> Callable[[Request], bool]:
    """The creation of a transition's Event."""
    return lambda request: (
        request.method == "POST"
        and request.path.endswith("/events")
        and json.loads(request.body)["reason"] == reason
    )


STEPS: dict[str, Callable[[Request], bool]] = {
    "intent": in_phase("Writing"),
    "document": document,
    "event of the intent": event("Intended"),
    "written": in_phase("Acknowledging"),
    "acknowledged": in_phase("Settling"),
    "verdict": verdict,
    "event of the verdict": event("Kept"),
}


@pytest.mark.parametrize("stage", Stage, ids=lambda stage: stage.name.lower())
@pytest.mark.parametrize("step", STEPS)
def test_a_crash_leaves_one_change_and_its_history_whole(
    scene: Scene, tmp_path: Path, step: str, stage: Stage
) -> None:
    cluster = scene.cluster
    with (
        FakeDeployment(scene.api, scene.namespace, "chat-8b", delay=MOUNT_DELAY) as target,
        HoldingProxy(cluster.server, cluster.ca_file) as proxy,
    ):
        kubeconfig = proxy.kubeconfig(tmp_path / "kubeconfig", cluster.token)
        arguments = ("--namespace", scene.namespace)
        hold = proxy.hold(stage, STEPS[step])
        scene.create(policy("chat", "chat-8b"))
        with OperatorProcess(tmp_path / "first", kubeconfig, None, *arguments) as first:
            hold.wait(180)
            first.kill()
        hold.drop()
        with OperatorProcess(tmp_path / "second", kubeconfig, None, *arguments):
            eventually(lambda: scene.reasons("chat") == WHOLE, "one change, kept", 180)
            eventually(lambda: events(scene) == sorted(WHOLE), "each Event once", 120)
        decisions = [d for d in scene.status("chat")["decisions"] if d["reason"] in WHOLE]
        assert len({each["decisionID"] for each in decisions}) == 1
        assert set(scene.revisions_written("chat-8b")) == {1}
        assert "pending" not in scene.status("chat")
        assert scene.status("chat")["applied"]["revision"] == 1
        assert target.engines[0].revision == 1


def test_answers_that_are_lost_leave_one_change_and_its_history_whole(
    scene: Scene, tmp_path: Path
) -> None:
    """Each write was carried out, and its connection closed without an answer."""
    cluster = scene.cluster
    with (
        FakeDeployment(scene.api, scene.namespace, "chat-8b", delay=MOUNT_DELAY) as target,
        HoldingProxy(cluster.server, cluster.ca_file) as proxy,
    ):
        kubeconfig = proxy.kubeconfig(tmp_path / "kubeconfig", cluster.token)
        holds = {step: proxy.hold(Stage.AFTER, matches) for step, matches in STEPS.items()}
        for hold in holds.values():
            hold.drop()
        scene.create(policy("chat", "chat-8b"))
        with OperatorProcess(tmp_path, kubeconfig, None, "--namespace", scene.namespace):
            eventually(lambda: scene.reasons("chat") == WHOLE, "one change, kept", 180)
            eventually(lambda: events(scene) == sorted(WHOLE), "each Event once", 120)
        assert [step for step, hold in holds.items() if hold.request is None] == []
        decisions = [d for d in scene.status("chat")["decisions"] if d["reason"] in WHOLE]
        assert len({each["decisionID"] for each in decisions}) == 1
        assert set(scene.revisions_written("chat-8b")) == {1}
        assert target.engines[0].revision == 1


def events(scene: Scene) -> list[str]:
    """The reasons of the change's Events, sorted."""
    return sorted(each["reason"] for each in scene.events() if each["reason"] in WHOLE)
