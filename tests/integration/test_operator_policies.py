"""What policies promise, on a real API server with the real controllers: modes, conflict, deletion.

The engines are faked at the protocol's edge; the operator is a process of its own.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from evictune.console.explain import render
from evictune.console.paper import Paper
from evictune.console.subjects import subject_of
from evictune.kube import ApiError
from evictune.wiring import Wiring, wire

from localcluster.controlplane import ControlPlane
from tests.support.fake_engines import FakeDeployment
from tests.support.operator_process import OperatorProcess, eventually
from tests.support.operator_scene import Scene, install_crd, policy, wait_exactly


@pytest.fixture(scope="module")
def cluster(control_plane: ControlPlane) -> ControlPlane:
    install_crd(control_plane)
    return control_plane


@pytest.fixture(scope="module")
def operator(
    cluster: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    directory = tmp_path_factory.mktemp("operator")
    with OperatorProcess(directory, cluster.kubeconfig) as running:
        yield running


@pytest.fixture
def scene(cluster: ControlPlane, operator: OperatorProcess) -> Iterator[Scene]:
    with Scene(cluster) as made:
        yield made


def test_recommend_writes_status_and_events_and_nothing_else(scene: Scene) -> None:
    with FakeDeployment(scene.api, scene.namespace, "chat-8b"):
        scene.create(policy("chat", "chat-8b", mode="Recommend"))
        eventually(lambda: scene.status("chat").get("recommendation"), "a recommendation")
        wait_exactly(3)
        assert scene.config_map("chat-8b") is None
        written = {
            (each["objectRef"]["resource"], each["objectRef"].get("subresource", ""))
            for each in scene.writes()
        }
        assert written == {("evictionpolicies", "status"), ("events", "")}
        assert {each["involvedObject"]["name"] for each in scene.events()} == {"chat"}


def test_auto_brings_the_value_into_force_and_says_who_acknowledged(scene: Scene) -> None:
    with FakeDeployment(scene.api, scene.namespace, "chat-8b", replicas=2) as target:
        scene.create(policy("chat", "chat-8b"))
        eventually(lambda: "Kept" in scene.reasons("chat"), "a change that was kept", 120)
        status = scene.status("chat")
        assert {engine.revision for engine in target.engines} == {status["applied"]["revision"]}
        assert status["engines"]["acknowledged"] == 2
        assert target.engines[0].values.xi_tokens == status["applied"]["values"]["xiTokens"]
        assert status["observedGeneration"] == scene.get("chat")["metadata"]["generation"]
        assert "finalizers" not in scene.get("chat")["metadata"]
        assert "annotations" not in scene.get("chat")["metadata"]
        listed = scene.cluster.kubectl("-n", scene.namespace, "get", "evp")
        assert max(map(len, listed.splitlines())) <= 120
        told = render(subject_of(scene.api, scene.get("chat")), Paper(time.time(), colored=False))
        assert "2 of 2 pods ready, 2 acknowledged" in told
        assert max(map(len, told.splitlines())) <= 120
        # Status, Events and the one ConfigMap: no write to pods, workloads or anything else.
        resources = {each["objectRef"]["resource"] for each in scene.writes()}
        assert resources == {"evictionpolicies", "events", "configmaps"}


def test_a_deleted_policy_returns_its_engines_to_stock_lru(scene: Scene) -> None:
    with FakeDeployment(scene.api, scene.namespace, "chat-8b") as target:
        scene.create(policy("chat", "chat-8b"))
        eventually(lambda: scene.document("chat-8b"), "a knob document", 120)
        scene.delete("chat")
        eventually(lambda: scene.config_map("chat-8b") is None, "the ConfigMap collected", 120)
        target.engines[0].page(9410)
        assert target.engines[0].values.stock


def test_a_policy_made_anew_at_once_owns_what_is_in_force(scene: Scene) -> None:
    """Whichever comes first: the garbage collector, or the operator that takes it over."""
    with FakeDeployment(scene.api, scene.namespace, "chat-8b") as target:
        scene.create(policy("chat", "chat-8b"))
        eventually(lambda: "Kept" in scene.reasons("chat"), "a change that was kept", 120)
        in_force = target.engines[0].values
        scene.delete("chat")
        scene.create(policy("chat", "chat-8b"))
        eventually(lambda: _owner(scene) == scene.get("chat")["metadata"]["uid"], "a new owner")
        eventually(lambda: scene.status("chat").get("applied"), "the values adopted")
        target.engines[0].page(9410)
        assert target.engines[0].values == in_force


def _owner(scene: Scene) -> str:
    """The UID of the policy that owns the knob document; empty without a document."""
    body = scene.config_map("chat-8b")
    return str(body["metadata"]["ownerReferences"][0]["uid"]) if body else ""


def test_the_younger_of_two_policies_on_one_target_says_conflict(scene: Scene) -> None:
    with FakeDeployment(scene.api, scene.namespace, "chat-8b"):
        scene.create(policy("older", "chat-8b"))
        wait_exactly(1.1)  # creation times have whole seconds
        scene.create(policy("a-younger", "chat-8b"))
        ready = eventually(
            lambda: _not_empty(scene.condition("a-younger", "Ready")), "a condition", 60
        )
        assert ready[:2] == ("False", "Conflict")
        assert "older" in ready[2]
        eventually(lambda: "Kept" in scene.reasons("older"), "the older goes on", 120)
        assert "pending" not in scene.status("a-younger")
        scene.delete("older")
        eventually(
            lambda: scene.condition("a-younger", "Ready")[0] == "True", "the younger takes over", 60
        )


def _not_empty(condition: tuple[str, str, str]) -> tuple[str, str, str] | None:
    return condition if condition[0] else None


def test_a_persons_edit_of_the_document_is_named_and_not_fought(scene: Scene) -> None:
    with FakeDeployment(scene.api, scene.namespace, "chat-8b"):
        scene.create(policy("chat", "chat-8b"))
        eventually(lambda: "Kept" in scene.reasons("chat"), "a change that was kept", 120)
        name = "evictune-knobs-deployment-chat-8b"
        scene.cluster.kubectl(
            "-n",
            scene.namespace,
            "patch",
            "configmap",
            name,
            "--type=merge",
            "-p",
            '{"data": {"knobs.json": "{}"}}',
        )
        eventually(lambda: scene.condition("chat", "Ready")[1] == "Conflict", "a conflict", 120)
        assert "kubectl-patch" in scene.condition("chat", "Ready")[2]
        wait_exactly(4)
        body = scene.config_map("chat-8b")
        assert body is not None
        assert body["data"]["knobs.json"] == "{}"


def test_a_spec_that_only_the_operator_refuses_is_named(scene: Scene) -> None:
    """A server whose definition is older lets through what the operator cannot use."""
    body = policy("chat", "chat-8b")
    definition = "crd/evictionpolicies.evictune.io"
    path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/slo"
    loose = f'[{{"op": "replace", "path": "{path}", "value": {{"type": "object", '
    loose += '"x-kubernetes-preserve-unknown-fields": true}}]'
    scene.cluster.kubectl("patch", definition, "--type=json", "-p", loose)
    try:
        body["spec"]["slo"]["ttft"]["threshold"] = "fast"
        eventually(lambda: _created(scene, body), "the loose definition in force", 120)
        eventually(lambda: scene.condition("chat", "Ready")[0] == "False", "a condition", 120)
        assert scene.condition("chat", "Ready")[1] == "InvalidSpec"
        assert "spec.slo.ttft.threshold" in scene.condition("chat", "Ready")[2]
    finally:
        install_crd(scene.cluster)


def _created(scene: Scene, body: dict[str, object]) -> bool:
    try:
        scene.create(body)
    except ApiError:
        return False
    return True


WORKLOAD = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: chat-8b}
spec:
  selector: {matchLabels: {app: chat-8b}}
  template:
    metadata: {labels: {app: chat-8b}}
    spec:
      containers:
      - {name: vllm, image: vllm/vllm-openai, args: ["--port=8200"], ports: [{containerPort: 8200}]}
"""


@pytest.mark.parametrize("image", [None, "registry.example/evictune-plugin:0.1.0"])
def test_a_wired_workload_is_what_the_api_server_takes(scene: Scene, image: str | None) -> None:
    wired = wire(WORKLOAD, Wiring(plugin_image=image))
    arguments = ("-n", scene.namespace, "apply", "--dry-run=server", "--validate=strict")
    answer = scene.cluster.kubectl(*arguments, "-f", "-", input=wired)
    assert answer == "deployment.apps/chat-8b created (server dry run)\n"


SLOW = {"interval": "10m", "knobTTL": "1h"}


def test_an_edit_is_seen_long_before_the_next_interval(scene: Scene) -> None:
    with FakeDeployment(scene.api, scene.namespace, "chat-8b"):
        scene.create(policy("chat", "chat-8b", mode="Observe", behavior=SLOW))
        eventually(lambda: scene.status("chat").get("observedGeneration") == 1, "a first tick")
        scene.edit("chat", suspend=True)
        eventually(lambda: scene.status("chat")["observedGeneration"] == 2, "the edit seen")


def test_suspend_holds_a_change_back_until_it_is_lifted(scene: Scene) -> None:
    with FakeDeployment(scene.api, scene.namespace, "chat-8b"):
        scene.create(policy("chat", "chat-8b", suspend=True))
        regime = "ReuseLost"
        eventually(lambda: (scene.status("chat").get("regime") or {}).get("name") == regime, regime)
        wait_exactly(3)
        assert scene.config_map("chat-8b") is None
        assert "pending" not in scene.status("chat")
        scene.edit("chat", suspend=False)
        eventually(lambda: scene.document("chat-8b"), "a knob document")
