"""A real API server takes the definition, fills in defaults, and refuses bad resources by field."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from evictune.api.decision import Memory
from evictune.api.parse import parse_policy
from evictune.api.status import memory_from_status, status_of
from evictune.decide import decide

from localcluster.controlplane import ControlPlane, KubectlError
from tests.support.operator_scene import install_crd
from tests.support.situations import NOW, observe

NAMESPACE = "crd-validation"
PRESETS = sorted((Path(__file__).resolve().parents[2] / "policies/presets").glob("*.yaml"))
POLICY: dict[str, Any] = {
    "apiVersion": "evictune.io/v1alpha1",
    "kind": "EvictionPolicy",
    "metadata": {"name": "chat", "namespace": NAMESPACE},
    "spec": {
        "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "chat-8b"},
        "slo": {"ttft": {"quantile": "0.99", "threshold": "800ms"}},
        "knobs": {
            "tlru": {"xiTokens": {"min": 32, "max": 4096}, "qHatTokens": {"min": 60, "max": 200}}
        },
    },
}


class Kubectl:
    """kubectl against the session's control plane, in a namespace of its own."""

    def __init__(self, plane: ControlPlane, directory: Path) -> None:
        self._plane, self._file = plane, directory / "manifest.yaml"

    def apply(self, manifest: dict[str, Any], *options: str) -> str:
        """Raises KubectlError with the server's answer."""
        self._file.write_text(yaml.safe_dump(manifest, sort_keys=False))
        return self._plane.kubectl("apply", "-f", str(self._file), *options)

    def run(self, *arguments: str) -> str:
        """Any other command."""
        return self._plane.kubectl(*arguments)

    def policy(self) -> dict[str, Any]:
        """The stored policy."""
        found: dict[str, Any] = json.loads(
            self.run("get", "evp", "chat", "-n", NAMESPACE, "-o", "json")
        )
        return found


@pytest.fixture(scope="module")
def kubectl(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Kubectl]:
    """The definition installed, and the good policy applied."""
    kubectl = Kubectl(control_plane, tmp_path_factory.mktemp("crd"))
    install_crd(control_plane)
    kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    kubectl.apply(POLICY)
    yield kubectl
    kubectl.run("delete", "namespace", NAMESPACE, "--wait=false")


def _changed(path: str, value: Any) -> dict[str, Any]:
    """The good policy with one field of its spec set, or removed by None."""
    policy = copy.deepcopy(POLICY)
    *parents, last = path.split(".")
    field = policy["spec"]
    for name in parents:
        field = field.setdefault(name, {})
    if value is None:
        del field[last]
    else:
        field[last] = value
    return policy


REFUSED = [
    ("knobs.tlru.xiTokens", {"min": 9, "max": 4}, "xiTokens.min", "min must not be above max"),
    ("knobs.tlru.xiTokens", {"min": 0, "max": 4}, "xiTokens.min", "xi 0 is stock LRU"),
    ("knobs.tlru.xiTokens.max", 99_999_999, "xiTokens.max", "10000000"),
    ("slo.ttft.quantile", "1.5", "quantile", "strictly between 0 and 1"),
    ("slo.ttft.quantile", "1", "quantile", "strictly between 0 and 1"),
    ("slo.ttft.quantile", 0.99, "quantile", "must be of type string"),
    ("slo.ttft.quantile", None, "quantile", "Required value"),
    ("slo.ttft.threshold", "fast", "threshold", "fast"),
    ("slo.ttft.threshold", "0s", "threshold", "use 1ms to 1h"),
    ("slo.ttft.window", "99999999999h", "window", "use 1s to 24h"),
    ("slo.ttft.minRequests", 0, "minRequests", "greater than or equal to 1"),
    ("slo.maxKVCacheUsage", "92", "maxKVCacheUsage", "use 0 to 1"),
    ("slo.maxPreemptionsPerSecond", "-1", "maxPreemptionsPerSecond", "-1"),
    ("targetRef.kind", "CronJob", "targetRef.kind", '"Deployment", "StatefulSet"'),
    ("targetRef.apiVersion", "batch/v1", "targetRef.apiVersion", '"apps/v1"'),
    ("targetRef.name", "chat-70b", "targetRef", "immutable"),
    ("mode", "Yolo", "mode", '"Observe", "Recommend", "Auto"'),
    ("behavior.interval", "500ms", "interval", "use 1s to 1h"),
    ("behavior.settle", "-5s", "settle", "-5s"),
    ("behavior.tolerance", "1.2", "tolerance", "use 0 to 1"),
    ("behavior.knobTTL", "1m", "knobTTL", "three times interval"),
    ("knobs.gpuMemoryUtilization", {"min": "0.8", "max": "1.0"}, "max", "use 0.05 to 0.95"),
    ("knobs.gpuMemoryUtilization", {"min": "0.01", "max": "0.9"}, "min", "use 0.05 to 0.95"),
    ("knobs.gpuMemoryUtilization", {"min": "0.9", "max": "0.8"}, "min", "lower min or raise max"),
    ("behavior.disruption.policy", "Yes", "policy", '"Never", "WhenRedundant", "Allow"'),
    (
        "behavior.disruption",
        {"policy": "WhenRedundant", "minReady": 0},
        "minReady",
        "set policy to Allow",
    ),
    ("behavior.disruption.windows", [{"cron": "daily", "duration": "1h"}], "cron", "daily"),
    ("metrics.source", "http://elsewhere", "metrics.source", "http://elsewhere"),
    ("metrics.url", "http://elsewhere", "metrics.url", "unknown field"),
]


@pytest.mark.parametrize(("path", "value", "field", "words"), REFUSED)
def test_refused_with_the_field_and_a_remedy(
    kubectl: Kubectl, path: str, value: Any, field: str, words: str
) -> None:
    with pytest.raises(KubectlError) as caught:
        kubectl.apply(_changed(path, value))
    answer = str(caught.value)
    assert f"spec.{path}".rpartition(".")[0] in answer
    assert field in answer
    assert words in answer


def test_the_good_policy_has_its_defaults_and_parses(kubectl: Kubectl) -> None:
    stored = kubectl.policy()
    assert stored["spec"]["mode"] == "Recommend"
    assert stored["spec"]["behavior"]["knobTTL"] == "1h"
    assert parse_policy(stored).spec == parse_policy(POLICY).spec


@pytest.mark.parametrize("preset", PRESETS, ids=lambda path: path.stem)
def test_presets_are_accepted(kubectl: Kubectl, preset: Path) -> None:
    manifest = yaml.safe_load(preset.read_text())
    manifest["metadata"]["namespace"] = NAMESPACE
    answer = kubectl.apply(manifest, "--dry-run=server")
    assert "created (server dry run)" in answer


def test_a_part_of_behavior_keeps_the_other_defaults(kubectl: Kubectl) -> None:
    kubectl.apply(_changed("behavior.interval", "10s"))
    behavior = kubectl.policy()["spec"]["behavior"]
    assert (behavior["interval"], behavior["cooldown"]) == ("10s", "10m")
    kubectl.apply(POLICY)


def test_the_status_is_kept_whole_and_shown(kubectl: Kubectl, tmp_path: Path) -> None:
    """Strict validation: a field that the schema lacks would be refused, not pruned."""
    stored = kubectl.policy()
    policy = parse_policy({**stored, "spec": {**stored["spec"], "mode": "Auto"}})
    decision = decide(policy, Memory(), observe(1.2), NOW)
    assert decision.memory.pending is not None
    status = status_of(policy, decision, observe(1.2), NOW)
    patch = tmp_path / "status.json"
    patch.write_text(json.dumps({"status": status}))
    kubectl.run(
        "patch", "evp", "chat", "-n", NAMESPACE, "--subresource=status", "--type=merge",
        f"--patch-file={patch}",
    )  # fmt: skip
    kept = kubectl.policy()["status"]
    assert kept == status
    assert memory_from_status(kept) == decision.memory
    table = kubectl.run("get", "evp", "-n", NAMESPACE).splitlines()
    assert table[0].split("  ")[0] == "NAME"
    assert {"Recommend", "1.2s", "False", "ReuseLost"} <= set(table[1].split())
    wide = kubectl.run("get", "evp", "-n", NAMESPACE, "-o", "wide").splitlines()
    assert "chat-8b" in wide[1].split()
    assert all(len(line) <= 120 for line in table)


def test_every_field_explains_itself(kubectl: Kubectl) -> None:
    explained = kubectl.run("explain", "evp.spec.slo.ttft.threshold")
    assert "What the quantile shall not exceed" in explained
    assert "qHatTokens" in kubectl.run("explain", "evp.spec", "--recursive")
