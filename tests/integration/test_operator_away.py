"""What is left when the operator is away: nothing stuck, and engines that return to stock LRU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from localcluster.controlplane import ControlPlane
from tests.support.fake_engines import FakeDeployment
from tests.support.holding_proxy import HoldingProxy, Stage
from tests.support.operator_process import OperatorProcess, eventually
from tests.support.operator_scene import Scene, install_crd, namespace_gone, policy, wait_exactly


@pytest.fixture(scope="module")
def cluster(control_plane: ControlPlane) -> ControlPlane:
    install_crd(control_plane)
    return control_plane


def test_a_namespace_is_deleted_completely_with_the_operator_away(
    cluster: ControlPlane, tmp_path: Path
) -> None:
    with Scene(cluster) as scene, FakeDeployment(scene.api, scene.namespace, "chat-8b"):
        scene.create(policy("chat", "chat-8b"))
        arguments = ("--namespace", scene.namespace)
        with OperatorProcess(tmp_path, cluster.kubeconfig, None, *arguments):
            eventually(lambda: scene.document("chat-8b"), "a knob document", 90)
        cluster.kubectl("delete", "namespace", scene.namespace, "--wait=false")
        eventually(lambda: namespace_gone(scene), "the namespace gone", 60)


def test_an_api_server_that_restarts_is_followed_again(
    cluster: ControlPlane, tmp_path: Path
) -> None:
    with Scene(cluster) as scene:
        scene.create(policy("chat", "nowhere"))
        arguments = ("--namespace", scene.namespace)
        with OperatorProcess(tmp_path, cluster.kubeconfig, None, *arguments) as operator:
            eventually(lambda: scene.condition("chat", "TargetFound")[0], "a first tick", 90)
            cluster.stop_api_server()
            wait_exactly(5)
            assert operator.alive()
            cluster.start_api_server()
            scene.edit("chat", suspend=True)
            generation = scene.get("chat")["metadata"]["generation"]
            eventually(
                lambda: scene.status("chat").get("observedGeneration") == generation,
                "the edit seen",
                60,
            )
            scene.create(policy("later", "nowhere"))
            eventually(lambda: scene.status("later"), "a policy made later is followed", 90)


def test_a_watch_that_stays_silent_is_made_up_for(cluster: ControlPlane, tmp_path: Path) -> None:
    """Its connection stands, and nothing comes."""
    with Scene(cluster) as scene, HoldingProxy(cluster.server, cluster.ca_file) as proxy:
        hold = proxy.hold(Stage.BEFORE, lambda request: "watch=true" in request.path)
        kubeconfig = proxy.kubeconfig(tmp_path / "kubeconfig", cluster.token)
        arguments = ("--namespace", scene.namespace)
        with OperatorProcess(tmp_path, kubeconfig, None, *arguments) as operator:
            listed = "evictune_last_list_timestamp_seconds"
            eventually(lambda: operator.value(listed), "a first list", 60)
            hold.wait(60)
            scene.create(policy("chat", "nowhere"))
            eventually(lambda: scene.status("chat"), "the policy followed", 90)
            assert operator.value("evictune_lost_watch_events_total") == 1.0


def test_a_watch_whose_version_is_too_old_begins_anew(
    cluster: ControlPlane, tmp_path: Path
) -> None:
    """410 Gone, as an event of the stream: what happened meanwhile is listed, not missed."""
    gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old version"}
    event = json.dumps({"type": "ERROR", "object": gone}).encode() + b"\n"
    with Scene(cluster) as scene, HoldingProxy(cluster.server, cluster.ca_file) as proxy:
        hold = proxy.hold(Stage.BEFORE, lambda request: "watch=true" in request.path)
        kubeconfig = proxy.kubeconfig(tmp_path / "kubeconfig", cluster.token)
        arguments = ("--namespace", scene.namespace)
        with OperatorProcess(tmp_path, kubeconfig, None, *arguments) as operator:
            assert "evictionpolicies" in hold.wait(60).path
            scene.create(policy("chat", "nowhere"))
            hold.answer(event)
            eventually(lambda: scene.status("chat"), "the policy followed", 20)
            assert operator.value("evictune_lost_watch_events_total") == 0.0
            assert operator.alive()


def test_the_document_is_renewed_and_expires_when_the_operator_is_away(
    cluster: ControlPlane, tmp_path: Path
) -> None:
    with (
        Scene(cluster) as scene,
        FakeDeployment(scene.api, scene.namespace, "chat-8b") as target,
    ):
        scene.create(policy("chat", "chat-8b", behavior={"knobTTL": "6s"}))
        arguments = ("--namespace", scene.namespace)
        with OperatorProcess(tmp_path, cluster.kubeconfig, None, *arguments):
            first = eventually(lambda: scene.document("chat-8b"), "a knob document", 90)
            renewed = eventually(lambda: _later(scene, first.expires), "the document renewed", 30)
            assert renewed.revision == first.revision
        wait_exactly(7)
        target.engines[0].page(9410)
        assert target.engines[0].values.stock


def _later(scene: Scene, expires: float) -> object:
    document = scene.document("chat-8b")
    return document if document is not None and document.expires > expires else None
