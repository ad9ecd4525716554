"""The chart on a real node, where restricted is enforced: install, `helm test`, upgrade."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from localcluster.controlplane import ControlPlane
from localcluster.node import Node
from tests.support.helm import CHART, HelmError, each_helm, helm
from tests.support.images import operator_image
from tests.support.installation import TEST_PODS
from tests.support.operator_process import eventually
from tests.support.operator_scene import install_crd

__all__ = ["each_helm"]
pytestmark = pytest.mark.timeout(900)

NAMESPACE = "restricted"
NAME = "checked"
RESTRICTED = "pod-security.kubernetes.io/enforce=restricted"
WAIT = ("--wait", "--timeout", "5m")
CHECKS = {"ok      definition", "ok      lease", "ok      operator", "ok      rights"}


@pytest.fixture
def release(control_plane: ControlPlane, node: Node, each_helm: str) -> Iterator[dict[str, Any]]:
    """The values of a release that runs; it follows its own namespace, and shares a definition."""
    image = operator_image()
    node.load_image(image.archive, image.reference)
    repository, _, tag = image.reference.rpartition(":")
    values = {
        "image": {"repository": repository, "tag": tag, "pullPolicy": "Never"},
        "crds": {"install": False},
        "watchNamespaces": [NAMESPACE],
    }
    install_crd(control_plane)
    control_plane.kubectl("create", "namespace", NAMESPACE)
    control_plane.kubectl("label", "namespace", NAMESPACE, RESTRICTED)
    try:
        command("install", control_plane, str(CHART), *WAIT, values=values)
        yield values
        command("uninstall", control_plane, "--wait")
        control_plane.kubectl("-n", NAMESPACE, "delete", "pods", "-l", TEST_PODS)
        eventually(lambda: NAME not in left(control_plane), "nothing left of it")
    finally:
        control_plane.kubectl("delete", "namespace", NAMESPACE, "--timeout=120s", timeout=130)


def left(cluster: ControlPlane) -> str:
    """Names of what is in the namespace; Helm does not wait for pods that are still ending."""
    return cluster.kubectl("-n", NAMESPACE, "get", "all,sa,role,rolebinding", "-o", "name")


def command(name: str, cluster: ControlPlane, *arguments: str, **given: Any) -> str:
    """A Helm command on the release."""
    place = ("--namespace", NAMESPACE)
    return helm(name, NAME, *arguments, *place, cluster=cluster, seconds=330, **given)


def test_an_installation_that_works_passes(
    control_plane: ControlPlane, release: dict[str, Any]
) -> None:
    said = command("test", control_plane, "--logs", "--timeout", "3m")
    assert said.count("Succeeded") == 5, said
    # Helm 3 shows a pod's log once more for each hook that has its name, of whatever kind.
    assert {line.split(":")[0] for line in said.splitlines() if line.startswith("ok ")} == CHECKS
    pods = json.loads(control_plane.kubectl("-n", NAMESPACE, "get", "pods", "-o", "json"))["items"]
    phases = sorted(pod["status"]["phase"] for pod in pods)
    assert phases == ["Running", "Succeeded", "Succeeded"]
    assert "-test" not in control_plane.kubectl("-n", NAMESPACE, "get", "sa,role", "-o", "name")
    # Once more with those pods there.
    command("test", control_plane, "--timeout", "3m")


# A test that fails has waited for a minute: by one Helm.
@pytest.mark.parametrize("each_helm", ["helm4"], indirect=True)
def test_what_does_not_work_is_told_and_stands_in_nobodys_way(
    control_plane: ControlPlane, release: dict[str, Any]
) -> None:
    changed = release | {"replicas": 0}
    command("upgrade", control_plane, str(CHART), *WAIT, values=changed)
    with pytest.raises(HelmError):
        command("test", control_plane, "--timeout", "3m")
    log = control_plane.kubectl("-n", NAMESPACE, "logs", f"pod/{NAME}-evictune-test")
    assert "ok      definition" in log
    assert "FAILED  lease: nobody holds" in log
    command("upgrade", control_plane, str(CHART), *WAIT, values=release)
    command("test", control_plane, "--timeout", "3m")
