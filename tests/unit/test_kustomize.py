"""The Kustomize component does what `evictune wire` does, and nothing else."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from evictune.wiring import Wiring, wire

from localcluster.binaries import ensure

ROOT = Path(__file__).resolve().parents[2]
COMPONENT = ROOT / "policies/kustomize"
IMAGE = "registry.example/evictune-plugin:0.1.0"
NEW_NAME, _, NEW_TAG = IMAGE.rpartition(":")
IMAGES = [{"name": "evictune-plugin", "newName": NEW_NAME, "newTag": NEW_TAG}]
# By which field Kubernetes tells the items of these lists apart: their order says nothing.
KEYS = {
    "volumes": "name",
    "containers": "name",
    "volumeMounts": "mountPath",
    "env": "name",
    "ports": "containerPort",
}

PLAIN = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: chat-8b, namespace: serving}
spec:
  template:
    spec:
      containers:
        - {name: vllm, image: vllm/vllm-openai}
"""
# With something at every place that is added to.
FULL = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: chat
  namespace: serving
  annotations: {owner: team-a}
spec:
  replicas: 3
  strategy: {type: Recreate}
  selector: {matchLabels: {app: chat}}
  template:
    metadata: {labels: {app: chat}, annotations: {a: b}}
    spec:
      securityContext: {fsGroup: 1000}
      tolerations: [{key: nvidia.com/gpu, operator: Exists}]
      initContainers:
        - {name: fetch, image: fetch:1, command: [fetch, /models]}
      containers:
        - name: proxy
          image: envoy:1
          env: [{name: PYTHONPATH, value: /proxy}]
          ports: [{name: http, containerPort: 80}]
        - name: vllm
          image: vllm/vllm-openai:v0.11.0
          args: ["--model=acme/owl-8b", "--port=8200"]
          env:
            - {name: HF_HUB_OFFLINE, value: "1"}
            - {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
          ports: [{name: http, containerPort: 8200}]
          resources: {limits: {nvidia.com/gpu: 1}}
          volumeMounts: [{name: models, mountPath: /models}]
      volumes:
        - {name: models, persistentVolumeClaim: {claimName: models}}
"""

Object = dict[str, Any]


def kustomize(directory: Path) -> list[Object]:
    """What `kubectl kustomize` makes of a directory."""
    done = subprocess.run(
        [str(ensure("kubectl")), "kustomize", str(directory)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    if done.returncode != 0:
        raise ValueError(done.stderr)
    return list(yaml.safe_load_all(done.stdout))


def layer(directory: Path, **fields: Any) -> Path:
    """A kustomization, which takes no absolute path."""
    directory.mkdir(exist_ok=True)
    (directory / "kustomization.yaml").write_text(yaml.safe_dump(fields))
    return directory


def component(directory: Path) -> str:
    """The component as a kustomization in `directory` names it."""
    return os.path.relpath(COMPONENT, directory)


def wired_by_kustomize(directory: Path, manifest: str, memory: bool = False) -> list[Object]:
    """A manifest with the component, or both, and the plugin's image."""
    (directory / "workload.yaml").write_text(manifest)
    components = [component(directory)]
    if memory:
        components.append(f"{component(directory)}/memory")
    made = layer(directory, resources=["workload.yaml"], components=components, images=IMAGES)
    return kustomize(made)


def unordered(value: Any) -> Any:
    """Lists whose items have a key as objects by that key."""
    if isinstance(value, list):
        return [unordered(each) for each in value]
    if not isinstance(value, dict):
        return value
    found = {}
    for field, inner in value.items():
        key = KEYS.get(field)
        if key is not None:
            inner = {str(item[key]): item for item in inner}
        found[field] = unordered(inner)
    return found


@pytest.mark.parametrize("memory", [False, True])
@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
@pytest.mark.parametrize("manifest", [PLAIN, FULL])
def test_the_component_does_what_the_command_does(
    tmp_path: Path, kind: str, manifest: str, memory: bool
) -> None:
    text = manifest.replace("kind: Deployment", f"kind: {kind}")
    (made,) = wired_by_kustomize(tmp_path, text, memory)
    by_command = yaml.safe_load(wire(text, Wiring(IMAGE, memory=memory)))
    # Both let the plugin be copied; only the order among the init containers differs.
    for each in (made, by_command):
        each["spec"]["template"]["spec"]["initContainers"].sort(key=lambda item: item["name"])
    assert unordered(made) == unordered(by_command)


def test_what_is_beside_the_engine_is_left_alone(tmp_path: Path) -> None:
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "chat-8b"}}
    service["spec"] = {"ports": [{"port": 80}]}
    made = wired_by_kustomize(tmp_path, f"{PLAIN}---\n{yaml.safe_dump(service)}")
    assert service in made
    assert len(made) == 2


def test_a_layer_above_may_hold_anything(tmp_path: Path) -> None:
    """The names are those after a prefix; a second engine has a layer of its own."""
    (tmp_path / "base").mkdir()
    (tmp_path / "base/workload.yaml").write_text(PLAIN)
    layer(tmp_path / "base", resources=["workload.yaml"])
    for name in ("a", "b"):
        layer(tmp_path / f"named-{name}", resources=["../base"], namePrefix=f"{name}-")
        directory = tmp_path / f"wired-{name}"
        layer(directory, resources=[f"../named-{name}"], components=[component(directory)])
    made = kustomize(layer(tmp_path / "all", resources=["../wired-a", "../wired-b"]))
    mounted = {}
    for body in made:
        volumes = {each["name"]: each for each in body["spec"]["template"]["spec"]["volumes"]}
        mounted[body["metadata"]["name"]] = volumes["evictune-knobs"]["configMap"]["name"]
    assert mounted == {
        name: f"evictune-knobs-deployment-{name}" for name in ("a-chat-8b", "b-chat-8b")
    }


def test_two_workloads_in_one_layer_are_refused(tmp_path: Path) -> None:
    second = PLAIN.replace("chat-8b", "other")
    with pytest.raises(ValueError, match="multiple matches"):
        wired_by_kustomize(tmp_path, f"{PLAIN}---\n{second}")


def test_the_example_of_the_installation_page_works(tmp_path: Path) -> None:
    text = (ROOT / "docs/how-to/install.md").read_text()
    (example,) = [
        each.partition("```")[0]
        for each in text.split("```yaml\n")
        if each.startswith("# kustomization.yaml")
    ]
    fields = yaml.safe_load(example)
    assert fields["components"] == ["../evictune/policies/kustomize"]
    (tmp_path / "deployment.yaml").write_text(PLAIN)
    made = layer(tmp_path, **fields | {"components": [component(tmp_path)]})
    assert kustomize(made) == wired_by_kustomize(tmp_path, PLAIN)
