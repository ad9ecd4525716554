"""An operator whose definition in the cluster is older or newer: nothing is forgotten unsaid."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from evictune.api.crd import crd
from evictune.kube import MERGE_PATCH, policies_path

from localcluster.controlplane import ControlPlane
from tests.support.definitions import every_field, is_dry, kept_fields, told
from tests.support.fake_engines import FakeDeployment
from tests.support.operator_process import OperatorProcess, eventually
from tests.support.operator_scene import Scene, install_crd, policy, wait_exactly

Schema = dict[str, Any]


@pytest.fixture
def scene(control_plane: ControlPlane) -> Iterator[Scene]:
    install_crd(control_plane)
    try:
        with Scene(control_plane) as made:
            yield made
    finally:
        install_crd(control_plane)


def replace_definition(scene: Scene, change: Callable[[Schema], None]) -> None:
    """Replace the definition by one with a changed schema of status; wait until it is in force."""
    body = crd()
    (version,) = body["spec"]["versions"]
    change(version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"])
    # Replaced, not applied: what an apply of another manager owns would stay.
    scene.cluster.kubectl(
        "replace", "-f", "-", input=yaml.safe_dump(body | resource_version(scene))
    )


def resource_version(scene: Scene) -> dict[str, Any]:
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/evictionpolicies.evictune.io"
    found = scene.api.get(path)["metadata"]
    return {"metadata": {"name": found["name"], "resourceVersion": found["resourceVersion"]}}


def forget(properties: Schema) -> None:
    """As before there was a quarantine, and values were told otherwise."""
    del properties["quarantine"]
    del properties["applied"]["properties"]["values"]


def test_under_an_older_definition_nothing_is_written_and_nothing_forgotten(
    scene: Scene, tmp_path: Path
) -> None:
    arguments = ("--namespace", scene.namespace)
    with FakeDeployment(scene.api, scene.namespace, "chat-8b") as target:
        scene.create(policy("chat", "chat-8b", behavior={"knobTTL": "10m"}))
        assert kept_fields(scene) == every_field()
        with OperatorProcess(tmp_path / "before", scene.cluster.kubeconfig, None, *arguments):
            eventually(lambda: "Kept" in scene.reasons("chat"), "a change that was kept")
        before = scene.status("chat")
        replace_definition(scene, forget)
        eventually(lambda: "quarantine" not in kept_fields(scene), "the older one in force")
        written = len(scene.writes())
        with OperatorProcess(
            tmp_path / "after", scene.cluster.kubeconfig, None, *arguments
        ) as operator:
            eventually(lambda: told(scene), "the Event")
            assert "status.quarantine" in told(scene)
            assert "status.applied.values" in told(scene)
            assert "evictune crd | kubectl apply" in told(scene)
            assert "status.quarantine" in operator.log.read_text()
            wait_exactly(3)
            news = [each for each in scene.writes()[written:] if not is_dry(each)]
            assert {each["objectRef"]["resource"] for each in news} == {"events"}
            install_crd(scene.cluster)
            eventually(lambda: "quarantine" in kept_fields(scene), "the current one in force")
            ticks = "evictune_tick_seconds_count"
            labels = {"namespace": scene.namespace, "policy": "chat"}
            eventually(lambda: operator.value(ticks, **labels), "followed again")
            after = scene.status("chat")
            assert after["applied"]["values"] == before["applied"]["values"]
            assert after["decisions"][: len(before["decisions"])] == before["decisions"]
            assert target.engines[0].revision == before["applied"]["revision"]


def remember_more(properties: Schema) -> None:
    """What a later operator may remember."""
    entry = {"type": "object", "properties": {"pod": {"type": "string"}}}
    properties["restarts"] = {"type": "array", "items": entry}


def test_what_a_newer_operator_remembered_is_left_as_it_is(scene: Scene, tmp_path: Path) -> None:
    replace_definition(scene, remember_more)
    with FakeDeployment(scene.api, scene.namespace, "chat-8b"):
        scene.create(policy("chat", "chat-8b"))
        restarts = [{"pod": "chat-8b-0"}]
        path = f"{policies_path(scene.namespace)}/chat/status"

        def remembered() -> bool:
            body = {"status": {"restarts": restarts}}
            scene.api.request("PATCH", path, body=body, content_type=MERGE_PATCH)
            return bool(scene.status("chat").get("restarts"))

        eventually(remembered, "the newer definition in force")
        arguments = ("--namespace", scene.namespace)
        with OperatorProcess(tmp_path, scene.cluster.kubeconfig, None, *arguments):
            eventually(lambda: "Kept" in scene.reasons("chat"), "a change that was kept")
        assert scene.status("chat")["restarts"] == restarts
