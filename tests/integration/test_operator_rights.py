"""The rights that the chart grants are those that the operator uses: no fewer, and no more."""

from __future__ import annotations

from pathlib import Path

import pytest

from localcluster.controlplane import ControlPlane
from tests.support.fake_engines import FakeDeployment
from tests.support.operator_process import eventually
from tests.support.operator_scene import Scene, install_crd, policy
from tests.support.release import Release


@pytest.mark.parametrize("scope", ["cluster-wide", "namespaced"])
def test_the_rights_used_are_the_rights_granted(
    control_plane: ControlPlane, tmp_path: Path, scope: str
) -> None:
    install_crd(control_plane)
    with Scene(control_plane) as scene, FakeDeployment(scene.api, scene.namespace, "chat-8b"):
        namespaces = [scene.namespace] if scope == "namespaced" else []
        arguments = [f"--namespace={name}" for name in namespaces]
        with Release(control_plane, tmp_path, {"watchNamespaces": namespaces}) as release:
            with release.operator(*arguments) as operator:
                run_through(scene)
                if scope == "cluster-wide":
                    definitions = ("apiextensions.k8s.io", "customresourcedefinitions", "watch")
                    eventually(lambda: definitions in release.used(), "definitions watched")
                events = ("evictune.io", "evictionpolicies", "watch")
                eventually(lambda: events in release.used(), "policies watched")
                assert operator.alive()
            assert release.refused() == set()
            assert release.used() == release.granted()


def run_through(scene: Scene) -> None:
    """A whole change on a Deployment, its renewal, and a StatefulSet that is looked for."""
    stateful = policy("stateful", "elsewhere")
    stateful["spec"]["targetRef"]["kind"] = "StatefulSet"
    scene.create(stateful)
    scene.create(policy("chat", "chat-8b", behavior={"knobTTL": "4s"}))
    eventually(lambda: "Kept" in scene.reasons("chat"), "a change that was kept")
    kept = scene.document("chat-8b")
    assert kept is not None
    eventually(lambda: expires(scene) > kept.expires, "the document renewed")
    eventually(lambda: scene.condition("stateful", "TargetFound")[0] == "False", "looked for")
    eventually(lambda: "Kept" in {each["reason"] for each in scene.events()}, "an Event")


def expires(scene: Scene) -> float:
    """When the knob document expires; 0 without one."""
    found = scene.document("chat-8b")
    return found.expires if found else 0.0
