"""What `helm test` runs, under the rights that it has, where restricted pod security is enforced.

The control plane has no nodes: pods are admitted and wait, and what they would run is run here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from evictune.wiring import Wiring, wire

from localcluster.controlplane import ControlPlane, KubectlError
from tests.support.helm import CHART
from tests.support.operator_process import eventually
from tests.support.operator_scene import Scene, install_crd
from tests.support.release import NAME, Release
from tests.support.service_account import service_account

RESTRICTED = "pod-security.kubernetes.io/enforce=restricted"
ENGINE = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: chat-8b}
spec:
  selector: {matchLabels: {app: chat-8b}}
  template:
    metadata: {labels: {app: chat-8b}}
    spec:
      containers:
        - name: vllm
          image: vllm/vllm-openai
          securityContext:
            allowPrivilegeEscalation: false
            capabilities: {drop: [ALL]}
            runAsNonRoot: true
            seccompProfile: {type: RuntimeDefault}
"""

STATUS = "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties/"

Object = dict[str, Any]


@pytest.fixture(params=["cluster-wide", "namespaced"])
def release(
    request: pytest.FixtureRequest, control_plane: ControlPlane, tmp_path: Path
) -> Iterator[Release]:
    """The chart in a namespace that enforces restricted; follows all namespaces, or one."""
    install_crd(control_plane)
    with Scene(control_plane) as scene:
        namespaces = [scene.namespace] if request.param == "namespaced" else []
        made = Release(control_plane, tmp_path, {"watchNamespaces": namespaces})
        for namespace in (made.namespace, scene.namespace):
            if namespace == made.namespace:
                control_plane.kubectl("create", "namespace", namespace)
            control_plane.kubectl("label", "namespace", namespace, RESTRICTED)
        with made:
            yield made


def hooks(release: Release) -> list[Object]:
    """The objects of `helm test`, made as Helm would make them."""
    text = release.helm("get", "hooks", NAME)
    release.cluster.kubectl("-n", release.namespace, "apply", "-f", "-", input=text)
    return [body for body in yaml.safe_load_all(text) if body]


def check(kubeconfig: Path, release: Release, *arguments: str) -> tuple[int, str]:
    """Exit code and output of `evictune check`."""
    root = CHART.parents[1]
    command = [sys.executable, "-m", "evictune.cli", "check", *arguments]
    command += ["--kubeconfig", str(kubeconfig), "--namespace", release.namespace]
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": str(root / "operator")},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return done.returncode, done.stdout + done.stderr


def configuration(release: Release, directory: Path) -> Path:
    """The operator's configuration, as the pods mount it."""
    answer = release.cluster.kubectl(
        "-n", release.namespace, "get", "configmap", NAME, "-o", "json"
    )
    file = directory / "of-the-chart.yaml"
    file.write_text(json.loads(answer)["data"]["config.yaml"])
    return file


@contextmanager
def pod_of(release: Release, name: str) -> Iterator[None]:
    """A pod of that name at the loopback address, where the operator listens."""
    kubectl = release.cluster.kubectl
    container = {"name": "x", "image": "x", "securityContext": _restricted()}
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"schedulerName": "nobody", "containers": [container]},
    }
    kubectl("-n", release.namespace, "create", "-f", "-", input=json.dumps(body))
    status = {"status": {"podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}}
    patch = ("patch", "pod", name, "--subresource=status", "--type=merge", "-p", json.dumps(status))
    kubectl("-n", release.namespace, *patch)
    yield
    kubectl("-n", release.namespace, "delete", "pod", name, "--force")


def _restricted() -> Object:
    (deployment,) = yaml.safe_load_all(ENGINE)
    found: Object = deployment["spec"]["template"]["spec"]["containers"][0]["securityContext"]
    return found


def test_an_installation_that_works_passes(release: Release, tmp_path: Path) -> None:
    made = {(body["kind"], body["metadata"]["name"]) for body in hooks(release)}
    assert ("ServiceAccount", f"{NAME}-test") in made
    tester = service_account(release.cluster, release.namespace, f"{NAME}-test", tmp_path)
    scope = [f"--namespace={name}" for name in release.values["watchNamespaces"]]
    with release.operator(*scope) as operator, pod_of(release, "operator"):
        code, said = check(tester, release, "--config", str(operator.config))
        assert code == 0, said
        assert said.count("ok   ") == 3
        assert f"operator holds {release.namespace}/evictune and renews it" in said
        assert "/healthz" in said
    # The Lease is given up, nobody answers: each is told, and the rest is still looked at.
    code, said = check(tester, release, "--config", str(operator.config), "--timeout", "2")
    assert code == 1
    assert "ok      definition" in said
    assert f"FAILED  lease: nobody holds {release.namespace}/evictune" in said
    assert "FAILED  operator" in said


def test_the_operators_account_has_its_rights(release: Release, tmp_path: Path) -> None:
    account = service_account(release.cluster, release.namespace, NAME, tmp_path)
    config = ("--config", str(configuration(release, tmp_path)), "--rights")
    code, said = check(account, release, *config)
    assert code == 0, said
    # The account of the test pod has fewer, which shows that the question is a real one.
    tester = service_account(release.cluster, release.namespace, f"{NAME}-test", tmp_path)
    code, said = check(tester, release, *config, "--timeout", "0")
    assert code == 1
    assert "may not get evictionpolicies.evictune.io in" in said


def test_every_pod_of_the_chart_is_admitted_where_restricted_is_enforced(
    release: Release,
) -> None:
    kubectl = release.cluster.kubectl
    with pytest.raises(KubectlError, match="violates PodSecurity"):
        kubectl("-n", release.namespace, "run", "plain", "--image=x")
    pods = [body["metadata"]["name"] for body in hooks(release) if body["kind"] == "Pod"]
    assert len(pods) == 2
    selector = f"--selector=app.kubernetes.io/name={NAME}"
    listing = ("-n", release.namespace, "get", "pods", "-o", "name")
    eventually(lambda: kubectl(*listing, selector).split(), "the operator's pod admitted")
    assert {f"pod/{name}" for name in pods} < set(kubectl(*listing).split())


def test_what_is_wired_is_still_admitted(release: Release) -> None:
    kubectl = release.cluster.kubectl
    wired = wire(ENGINE, Wiring("registry.example/evictune-plugin:0.1.0"))
    kubectl("-n", release.namespace, "apply", "-f", "-", input=wired)
    listing = ("-n", release.namespace, "get", "pods", "-o", "name", "--selector=app=chat-8b")
    eventually(lambda: kubectl(*listing).split(), "the engine's pod admitted")


def test_a_definition_that_lacks_a_field_is_told(release: Release, tmp_path: Path) -> None:
    """By what the API server publishes, which every account may read."""
    hooks(release)
    tester = service_account(release.cluster, release.namespace, f"{NAME}-test", tmp_path)
    patch = [{"op": "remove", "path": STATUS + "quarantine"}]
    change = ("patch", "crd", "evictionpolicies.evictune.io", "--type=json", "-p")
    release.cluster.kubectl(*change, json.dumps(patch))
    try:
        eventually(
            lambda: "without status.quarantine" in check(tester, release, "--timeout", "0")[1],
            "the smaller definition noticed",
        )
    finally:
        install_crd(release.cluster)
