"""An upgrade from the chart before, a rollback to it, and forth again: what policies are, and what
is remembered of them, is all there. By Helm 3 and by Helm 4, on a real API server.
"""

from __future__ import annotations

import secrets
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from evictune.api.times import format_time
from evictune.kube import MERGE_PATCH, policies_path

from localcluster.controlplane import ControlPlane
from tests.support.chart_snapshots import DATA
from tests.support.definitions import every_field, is_dry, kept_fields, told
from tests.support.fake_api import merge
from tests.support.fake_engines import FakeDeployment
from tests.support.helm import CHART, each_helm, helm
from tests.support.operator_process import OperatorProcess, eventually
from tests.support.operator_scene import (
    DEFINITION,
    Scene,
    install_crd,
    policy,
    remove_crd,
    wait_exactly,
)
from tests.support.service_account import service_account

__all__ = ["each_helm"]

BEFORE = DATA / "evictune-0.1.0.tgz"
NAME = "evictune"
# As an operator of that time left it: a value in force, and one that must not come back.
LEFT = {
    "applied": {
        "revision": 7,
        "decisionID": "d-7",
        "values": {"xiTokens": 512, "qHatTokens": 60},
    },
    "decisions": [
        {
            "decisionID": "d-7",
            "time": "2026-01-01T00:00:00Z",
            "reason": "Kept",
            "message": "kept",
            "to": {"xiTokens": 512, "qHatTokens": 60},
        }
    ],
    "quarantine": [
        {
            "values": {"xiTokens": 64, "qHatTokens": 60},
            "fingerprint": "other traffic",
            # Within what quarantine may last: what is beyond is taken for a clock's jump.
            "until": format_time(time.time() + 1800),
            "reason": "Reverted",
        }
    ],
}

Object = dict[str, Any]


@dataclass
class Release:
    """A release whose charts change; the definition is its own."""

    cluster: ControlPlane
    namespace: str

    def helm(self, *arguments: str) -> str:
        """A command on the release."""
        return helm(*arguments, "--namespace", self.namespace, cluster=self.cluster)

    def operator(self, directory: Path, scene: Scene) -> OperatorProcess:
        """The operator, with the rights that the chart grants."""
        kubeconfig = service_account(self.cluster, self.namespace, NAME, directory)
        arguments = ("--namespace", scene.namespace)
        lease = {"namespace": self.namespace}
        return OperatorProcess(directory, kubeconfig, None, *arguments, lease=lease)


@contextmanager
def released(cluster: ControlPlane, chart: Path) -> Iterator[Release]:
    """The chart installed where there was no definition; all is as before at the end."""
    remove_crd(cluster)
    release = Release(cluster, f"operators-{secrets.token_hex(3)}")
    release.helm("install", NAME, str(chart), "--create-namespace")
    try:
        cluster.await_definition(DEFINITION)
        yield release
    finally:
        release.helm("uninstall", NAME)
        remove_crd(cluster)
        cluster.kubectl("delete", "namespace", release.namespace, "--wait=false")
        install_crd(cluster)


@pytest.fixture
def before(tmp_path: Path) -> Path:
    """The chart before, with a definition that does not know all of today's memory."""
    with tarfile.open(BEFORE) as archive:
        archive.extractall(tmp_path / "before", filter="data")
    chart = tmp_path / "before/evictune"
    file = chart / "files/crd.yaml"
    body = yaml.safe_load(file.read_text())
    (version,) = body["spec"]["versions"]
    status = version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    del status["quarantine"]["items"]["properties"]["times"]
    del status["engines"]["properties"]["changedTime"]
    file.write_text(yaml.safe_dump(body, sort_keys=False))
    return chart


def leave(scene: Scene, status: Object) -> None:
    """Write a policy's status."""
    path = f"{policies_path(scene.namespace)}/chat/status"
    scene.api.request("PATCH", path, body={"status": status}, content_type=MERGE_PATCH)


def remembered(status: Object) -> Object:
    """What must not be forgotten of a status."""
    return {name: status[name] for name in LEFT}


def complete(scene: Scene) -> bool:
    """Whether the definition in force keeps every field of this version."""
    return kept_fields(scene) == every_field()


def test_upgrade_and_rollback_forget_nothing(
    control_plane: ControlPlane, tmp_path: Path, before: Path, each_helm: str
) -> None:
    with released(control_plane, before) as release, Scene(control_plane) as scene:
        scene.create(policy("chat", "chat-8b"))
        leave(scene, LEFT)
        assert not complete(scene)
        first = scene.get("chat")
        assert remembered(first["status"]) == LEFT

        release.helm("upgrade", NAME, str(CHART))
        eventually(lambda: complete(scene), "the fields of the new chart's definition")
        after = scene.get("chat")
        # A field that is new may have a default.
        assert merge(after["spec"], first["spec"]) == after["spec"]
        assert after["metadata"]["uid"] == first["metadata"]["uid"]
        assert after["status"] == first["status"]

        with FakeDeployment(scene.api, scene.namespace, "chat-8b"):
            upgraded = work(release, scene, tmp_path / "upgraded")
            release.helm("rollback", NAME, "1")
            eventually(lambda: not complete(scene), "the fields of the chart before")
            refuse(release, scene, tmp_path / "back")
            assert scene.get("chat")["spec"] == first["spec"]

            release.helm("upgrade", NAME, str(CHART))
            eventually(lambda: complete(scene), "the new chart's definition again")
            assert remembered(scene.status("chat")) == remembered(upgraded)


def work(release: Release, scene: Scene, directory: Path) -> Object:
    """Let the operator go on from what it finds, and stop it; the status that it leaves.

    Its document is not there: what was in force is brought into force again, as it was.
    """
    with release.operator(directory, scene):
        eventually(lambda: "Restored" in scene.reasons("chat"), "the document written again")
        eventually(lambda: scene.condition("chat", "SLOMet")[0] == "True", "the target met by it")
    status = scene.status("chat")
    assert status["applied"] | LEFT["applied"] == status["applied"]
    assert status["decisions"][0] == LEFT["decisions"][0]
    (kept,) = [each for each in status["quarantine"] if each["fingerprint"] == "other traffic"]
    assert kept == LEFT["quarantine"][0]
    return status


def refuse(release: Release, scene: Scene, directory: Path) -> None:
    """An operator newer than the definition says what it lacks, and writes nothing else."""
    written = len(scene.writes())
    with release.operator(directory, scene):
        eventually(lambda: told(scene), "the Event")
        wait_exactly(3)
    assert "status.quarantine[0].times" in told(scene)
    assert "status.engines.changedTime" in told(scene)
    news = [each for each in scene.writes()[written:] if not is_dry(each)]
    assert {each["objectRef"]["resource"] for each in news} == {"events"}


def test_the_definition_and_policies_stay_when_the_release_goes(
    control_plane: ControlPlane, each_helm: str
) -> None:
    with released(control_plane, CHART) as release, Scene(control_plane) as scene:
        scene.create(policy("chat", "chat-8b"))
        release.helm("uninstall", NAME)
        assert scene.get("chat")["spec"]["targetRef"]["name"] == "chat-8b"
        # A release of the same name in the same namespace takes it over.
        release.helm("install", NAME, str(CHART))
        release.helm("upgrade", NAME, str(CHART), "--set", "replicas=2")
        assert scene.get("chat")["spec"]["targetRef"]["name"] == "chat-8b"
