"""Whatever goes first, nothing is left, nothing is stuck, and engines return to stock LRU."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from evictune.api.times import parse_time

from localcluster.controlplane import ControlPlane, KubectlError
from tests.support.fake_engines import FakeDeployment
from tests.support.operator_process import OperatorProcess, eventually
from tests.support.operator_scene import (
    DEFINITION,
    Scene,
    gone,
    install_crd,
    namespace_gone,
    policy,
    remove_crd,
    wait_exactly,
)
from tests.support.release import Release

LIMIT = 60.0
# The garbage collector looks for new kinds every 30 s. Of one that goes before it was found, it
# leaves what belonged to it: the document would expire instead.
COLLECTOR_SYNC = 40.0


def await_collector(cluster: ControlPlane) -> None:
    """Wait until the garbage collector must have found the definition."""
    shown = "jsonpath={.metadata.creationTimestamp}"
    created = cluster.kubectl("get", "crd", DEFINITION, "-o", shown)
    wait_exactly(max(0.0, parse_time(created) + COLLECTOR_SYNC - time.time()))


def definition_gone(cluster: ControlPlane) -> bool:
    """Whether the API server has forgotten the definition."""
    try:
        return not cluster.kubectl("get", "crd", DEFINITION, "--ignore-not-found").strip()
    except KubectlError:
        return False


def at_stock(target: FakeDeployment) -> bool:
    """Whether every engine evicts by stock LRU."""
    for engine in target.engines:
        engine.page(9410)
    return all(engine.values.stock for engine in target.engines)


def test_uninstalled_with_policies_present_everything_goes(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    """The chart with its definition: helm uninstall deletes both, in an order of its own."""
    values = {"crds": {"install": True, "keep": False}}
    remove_crd(control_plane)
    try:
        with (
            Scene(control_plane) as scene,
            FakeDeployment(scene.api, scene.namespace, "chat-8b") as target,
            Release(control_plane, tmp_path, values) as release,
        ):
            control_plane.await_definition(DEFINITION)
            scene.create(policy("chat", "chat-8b", behavior={"knobTTL": "1h"}))
            with release.operator():
                eventually(lambda: "Kept" in scene.reasons("chat"), "a change that was kept")
                await_collector(control_plane)
                release.uninstall()
                eventually(lambda: definition_gone(control_plane), "the definition gone", LIMIT)
                eventually(lambda: gone(scene, "chat-8b"), "the document collected", LIMIT)
            assert at_stock(target)
            with pytest.raises(KubectlError, match=r"NotFound|not found"):
                control_plane.kubectl("get", "clusterrole", "evictune")
    finally:
        install_crd(control_plane)


@pytest.mark.parametrize("scope", ["cluster-wide", "namespaced"])
def test_a_definition_that_is_deleted_is_named_and_followed_when_it_is_back(
    control_plane: ControlPlane, tmp_path: Path, scope: str
) -> None:
    install_crd(control_plane)
    with (
        Scene(control_plane) as scene,
        FakeDeployment(scene.api, scene.namespace, "chat-8b") as target,
    ):
        arguments = [f"--namespace={scene.namespace}"] if scope == "namespaced" else []
        kubeconfig = control_plane.kubeconfig
        with OperatorProcess(tmp_path, kubeconfig, None, *arguments) as operator:
            scene.create(policy("chat", "chat-8b", behavior={"knobTTL": "1h"}))
            eventually(lambda: "Kept" in scene.reasons("chat"), "a change that was kept")
            await_collector(control_plane)
            try:
                control_plane.kubectl("delete", "crd", DEFINITION, "--wait=false")
                eventually(lambda: definition_gone(control_plane), "the definition gone", LIMIT)
                eventually(lambda: gone(scene, "chat-8b"), "the document collected", LIMIT)
                assert at_stock(target)
                eventually(
                    lambda: "evictune crd | kubectl apply" in operator.log.read_text(),
                    "what is missing told",
                    90,
                )
                eventually(operator.alive, "the probe answered")
            finally:
                install_crd(control_plane)
            scene.create(policy("chat", "chat-8b"))
            eventually(lambda: "Kept" in scene.reasons("chat"), "followed again", 180)
            assert operator.alive()


def test_a_namespace_deleted_first_goes_and_the_operator_lets_it(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    install_crd(control_plane)
    with Scene(control_plane) as other, OperatorProcess(tmp_path, control_plane.kubeconfig) as run:
        with (
            Scene(control_plane) as scene,
            FakeDeployment(scene.api, scene.namespace, "chat-8b") as target,
        ):
            scene.create(policy("chat", "chat-8b"))
            eventually(lambda: scene.document("chat-8b"), "a knob document")
            control_plane.kubectl("delete", "namespace", scene.namespace, "--wait=false")
            eventually(lambda: namespace_gone(scene), "the namespace gone", LIMIT)
            assert at_stock(target)
            labels = {"namespace": scene.namespace, "policy": "chat"}
            eventually(
                lambda: run.value("evictune_tick_seconds_count", **labels) is None,
                "the policy forgotten",
            )
            before = run.log.read_text()
            wait_exactly(3)
            assert scene.namespace not in run.log.read_text()[len(before) :]
        other.create(policy("chat", "nowhere"))
        eventually(lambda: other.condition("chat", "TargetFound")[0], "others are followed")
