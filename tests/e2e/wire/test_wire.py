"""`evictune wire` on a running workload: by one rollout, nothing else touched, and undone."""

from __future__ import annotations

import json
from typing import Any

import yaml

from tests.support.installation import PLUGIN_IMAGE, Installation, wait_for
from tests.support.serving import WORKLOAD, Serving, deployment, policy

# What the plugin needs and `wire` adds; the rest of a pod's template is its owner's.
OURS = ("evictune-knobs", "evictune-plugin", "EVICTUNE_", "PYTHONPATH")


def test_a_running_workload_is_wired_by_one_rollout(installation: Installation) -> None:
    with Serving(installation, "wire") as serving:
        manifest = serving.shell.directory / "engine.yaml"
        manifest.write_text(yaml.safe_dump(deployment()))
        apply = f"kubectl -n {serving.namespace} apply -f"
        serving.shell.run(f"{apply} {manifest.name}")
        serving.apply(policy(mode="Observe"))
        serving.await_rollout()
        wait_for("told that it is not wired", lambda: _active(serving)[1] == "PolicyNotActive")
        assert "does not show the plugin" in _active(serving)[2]
        before = _workload(serving)

        read = f"kubectl -n {serving.namespace} get deployment {WORKLOAD} -o yaml"
        image = f"--plugin-image {PLUGIN_IMAGE}"
        check = f"{read} | evictune wire --check {image} -"
        assert "not every workload is wired" in serving.shell.refused(check)
        wire = f"evictune wire {manifest.name} {image} | {apply} -"
        serving.shell.run(wire)
        serving.await_rollout()
        assert f"{WORKLOAD}: wired" in serving.shell.run(check)
        after = _workload(serving)
        assert after["metadata"]["generation"] == before["metadata"]["generation"] + 1
        assert _others(after) == _others(before)
        wait_for("followed", lambda: _active(serving)[:2] == ("True", "StockLRU"))

        assert "unchanged" in serving.shell.run(wire)
        serving.shell.run(f"{apply} {manifest.name}")
        assert "not every workload is wired" in serving.shell.refused(check)
        assert _workload(serving)["spec"] == before["spec"]


def _active(serving: Serving) -> tuple[str, str, str]:
    return serving.condition("PolicyActive")


def _workload(serving: Serving) -> dict[str, Any]:
    return serving.objects.get("deployment", WORKLOAD)


def _others(workload: dict[str, Any]) -> dict[str, Any]:
    """The pod template without what `wire` adds."""
    pod = json.loads(json.dumps(workload["spec"]["template"]["spec"]))
    (container,) = pod["containers"]
    pod.pop("initContainers", None)
    for holder, field in ((pod, "volumes"), (container, "volumeMounts"), (container, "env")):
        holder[field] = [item for item in holder[field] if not item["name"].startswith(OURS)]
    container["ports"] = [port for port in container["ports"] if port["containerPort"] != 9410]
    found: dict[str, Any] = pod
    return found
