"""A namespace of one behaviour's on the real node: a wired engine stand-in, and its policy."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping
from typing import Any, Self

import yaml
from evictune.wiring import Wiring, wire

from localcluster.paths import SOURCE_ROOT
from tests.support.installation import ENGINE_IMAGE, PLUGIN_IMAGE, Installation, wait_for
from tests.support.local_http import opened
from tests.support.objects import Object, Objects
from tests.support.operator_scene import policy as scene_policy
from tests.support.shell import Shell
from tests.support.vllm_pod import Engine, InForce

WORKLOAD = "chat-8b"
POLICY = "chat"
CONFIG_MAP = f"evictune-knobs-deployment-{WORKLOAD}"
CHECKOUT = "/checkout"


def deployment(
    name: str = WORKLOAD, load: str = "better", replicas: int = 1, arguments: tuple[str, ...] = ()
) -> Object:
    """The engine's Deployment as its owner would write it, not wired yet."""
    labels = {"app": name}
    container = {
        "name": "vllm",
        "image": ENGINE_IMAGE,
        "imagePullPolicy": "Never",
        "command": ["python", "-m", "tests.support.engine_stand_in"],
        "args": [f"--load={load}", *arguments],
        "env": [{"name": "PYTHONPATH", "value": CHECKOUT}],
        "ports": [{"name": "http", "containerPort": 8000}],
        "readinessProbe": {"httpGet": {"path": "/health", "port": 8000}, "periodSeconds": 1},
        "volumeMounts": [
            {"name": "checkout", "mountPath": f"{CHECKOUT}/tests", "readOnly": True},
        ],
        # It reads the checkout, whoever may.
        "securityContext": {"runAsUser": 0},
    }
    volume = {"name": "checkout", "hostPath": {"path": str(SOURCE_ROOT / "tests")}}
    pod = {"terminationGracePeriodSeconds": 1, "containers": [container], "volumes": [volume]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def policy(name: str = POLICY, **spec: Any) -> Object:
    """A policy whose interval, window and waits are as short as they may be."""
    behavior = {"knobTTL": "20s"} | spec.pop("behavior", {})
    return scene_policy(name, WORKLOAD, behavior=behavior, **spec)


class Serving:
    """The namespace, for as long as the `with` block lasts; the Deployment is up to the test."""

    def __init__(self, installation: Installation, namespace: str) -> None:
        self.installation = installation
        self.shell: Shell = installation.shell
        self.namespace = namespace
        self.objects = Objects(self.shell.cluster, namespace)

    def __enter__(self) -> Self:
        self.shell.run(f"kubectl create namespace {self.namespace}")
        return self

    def __exit__(self, *_: object) -> None:
        name = self.namespace
        self.shell.run(f"kubectl delete namespace {name} --wait=false --ignore-not-found")

    # What a person does.

    def kubectl(self, words: str, input: str | None = None) -> str:
        """`kubectl -n NAMESPACE ...`."""
        return self.shell.run(f"kubectl -n {self.namespace} {words}", input)

    def apply(self, body: Mapping[str, Any]) -> None:
        """`kubectl apply` of one object."""
        self.kubectl("apply -f -", json.dumps(body))

    def start(self, **changes: Any) -> None:
        """The Deployment, wired; returns when its rollout is complete."""
        self.apply_wired(deployment(**changes))
        self.await_rollout()

    def apply_wired(self, manifest: Mapping[str, Any]) -> None:
        """As by `evictune wire | kubectl apply`."""
        self.kubectl("apply -f -", wire(yaml.safe_dump(dict(manifest)), Wiring(PLUGIN_IMAGE)))

    def await_rollout(self) -> None:
        """Wait until every pod is of the Deployment's present template, and ready."""
        wait_for("the rollout", lambda: self.objects.rolled_out(WORKLOAD), 120.0)

    def patch(self, spec: Mapping[str, Any], name: str = POLICY) -> None:
        """Merge into a policy's spec."""
        self.kubectl(f"patch evp {name} --type=merge -p '{json.dumps({'spec': spec})}'")

    def becomes(self, load: str) -> None:
        """Serving is like this from now on, at every engine: a name of the stand-in's LOADS."""
        for engine in self.engines():
            request = urllib.request.Request(f"{engine.url}/load/{load}", method="POST")
            opened(request).close()

    # What came of it.

    def status(self, name: str = POLICY) -> Object:
        """A policy's status; empty until it is written."""
        found: Object = self.objects.get("evp", name).get("status", {})
        return found

    def condition(self, kind: str, name: str = POLICY) -> tuple[str, str, str]:
        """A condition's status, reason and message; empty words while it is absent."""
        for each in self.status(name).get("conditions", ()):
            if each["type"] == kind:
                return each["status"], each["reason"], each["message"]
        return "", "", ""

    def reasons(self, name: str = POLICY) -> list[str]:
        """The reasons of the decisions in status, oldest first."""
        return [each["reason"] for each in self.status(name).get("decisions", ())]

    def events(self) -> list[str]:
        """The reasons of the Events about policies."""
        events = self.objects.all("event")
        ours = [each for each in events if each["involvedObject"]["kind"] == "EvictionPolicy"]
        return [each["reason"] for each in ours]

    def pods(self) -> list[Object]:
        """The pods that are not leaving."""
        return self.objects.all("pod")

    def engines(self) -> list[Engine]:
        """The engines at the addresses of their pods."""
        return [Engine(pod["status"]["podIP"]) for pod in self.pods() if "podIP" in pod["status"]]

    def document(self) -> Object | None:
        """The knob document in the cluster, if there is one."""
        return self.objects.document(CONFIG_MAP)

    def in_force(self) -> bool:
        """Whether every engine has what status says was applied, and status says that it has."""
        status = self.status()
        applied = status.get("applied", {})
        if "pending" in status or "xiTokens" not in applied.get("values", {}):
            return False
        expected = InForce("t-lru", applied["values"]["xiTokens"], applied["revision"])
        shown = [engine.in_force() for engine in self.engines()]
        wanted = self.objects.get("deployment", WORKLOAD)["spec"]["replicas"]
        return shown == [expected] * wanted and status["engines"]["acknowledged"] == wanted

    def stock(self) -> bool:
        """Whether every engine evicts by stock LRU."""
        shown = [engine.in_force() for engine in self.engines()]
        return bool(shown) and all(each is not None and each.policy == "lru" for each in shown)

    def bring_into_force(self, *, judged: bool = True, **spec: Any) -> None:
        """A policy in Auto, and its first change in force and, if `judged`, kept."""
        self.apply(policy(**spec))
        if judged:
            wait_for("a xi in force, and kept", self.in_force)
        else:
            wait_for("a xi in force", lambda: "Acknowledged" in self.reasons())
