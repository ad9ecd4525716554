"""Two engines on a real node whose live requests hold all KV blocks, and their policy.

A block of this engine is large and its requests are short: each holds one block or two, and holding
them is cheap to compute. What an engine's memory is, is said by its container's limit, so that
the pool is the same on any machine.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from demo.constants import ModelSize
from demo.model import cached_model
from localcluster.controlplane import ControlPlane
from localcluster.node import Node
from tests.support import vllm_pod
from tests.support.balanced_load import Shape, takes_requests
from tests.support.objects import Object
from tests.support.stack import NAMESPACE, RELEASE, WORKLOAD, Stack, apply_wired
from tests.support.vllm_pod import Engine

POLICY = "chat"
MANIFEST = "0.25"
# 128 KiB of KV a token: a block of 512 tokens is 64 MiB. Of a twentieth of 20 GiB that makes 16.
MODEL = ModelSize(layers=4, hidden=64, intermediate=128, heads=32, head=128)
MEMORY = "20Gi"
ARGUMENTS = {"block-size": 512, "max-num-seqs": 256, "gpu-memory-utilization": MANIFEST}
NOT_THESE = ("num-gpu-blocks-override", "kv-cache-memory-bytes")
# Seconds; a real fleet's are minutes. Confirmed later than judged, but for one test.
CONFIRM = 60
NOT_READY = 10
WINDOW = 45
SETTLE = 20
INTERVAL = 2
# What both pools together hold at 0.25, and about a fifth more.
SHORT = Shape(clients=150, prompt_tokens=60, output_tokens=40)
# More wait than run, and each grows past its first block soon after it began.
STORM = Shape(clients=220, prompt_tokens=500, output_tokens=150)
QUIET = Shape(clients=6, prompt_tokens=60, output_tokens=20)


def start_engines(cluster: ControlPlane, node: Node, plugin_image: str) -> None:
    """Two replicas as their owner would write them, wired."""
    image = node.base_image.reference
    manifest = vllm_pod.deployment(NAMESPACE, WORKLOAD, image, cached_model(MODEL))
    spec = manifest["spec"]
    spec["replicas"] = 2
    spec["strategy"] = {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
    (container,) = spec["template"]["spec"]["containers"]
    changed = (*ARGUMENTS, *NOT_THESE)
    kept = [each for each in container["args"] if each[2:].partition("=")[0] not in changed]
    container["args"] = kept + [f"--{name}={value}" for name, value in ARGUMENTS.items()]
    container["resources"] = {"limits": {"memory": MEMORY}, "requests": {"memory": "1Gi"}}
    container["env"] += [
        {"name": "EVICTUNE_CONFIRM_SECONDS", "value": str(CONFIRM)},
        {"name": "EVICTUNE_NOT_READY_SECONDS", "value": str(NOT_READY)},
    ]
    apply_wired(cluster, manifest, "--memory", "--plugin-image", plugin_image)


def policy(largest: str, step: str) -> Object:
    """Wants a short p90 of the TTFT; engines may restart where there are two."""
    return {
        "apiVersion": "evictune.io/v1alpha1",
        "kind": "EvictionPolicy",
        "metadata": {"name": POLICY, "namespace": NAMESPACE},
        "spec": {
            "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": WORKLOAD},
            "mode": "Auto",
            # Half a second is above what a step takes, and below any wait for a block.
            "slo": {
                "ttft": {
                    "quantile": "0.9",
                    "threshold": "500ms",
                    "window": f"{WINDOW}s",
                    "minRequests": 20,
                }
            },
            "knobs": bounds(MANIFEST, largest, step),
            "behavior": {
                "interval": f"{INTERVAL}s",
                "settle": f"{SETTLE}s",
                "cooldown": "2s",
                "knobTTL": "10m",
                "disruption": {
                    "policy": "WhenRedundant",
                    "maxPerDay": 24,
                    "drainTimeout": "2m",
                },
            },
        },
    }


def bounds(smallest: str, largest: str, step: str) -> dict[str, Any]:
    """spec.knobs."""
    return {"gpuMemoryUtilization": {"min": smallest, "max": largest, "step": step}}


@dataclass
class Scene:
    """The stack, and what its policy has told so far: status keeps the last transitions only."""

    stack: Stack
    _told: dict[tuple[str, str, str], Object] = field(default_factory=dict)

    def status(self) -> Object:
        """The policy's status; its transitions are remembered."""
        status = self.stack.status(POLICY)
        for each in status.get("decisions", ()):
            self._told[each["decisionID"], each["reason"], each["time"]] = each
        return status

    def told(self, decision: str) -> list[str]:
        """The reasons told of a decision, and of its pods."""
        self.status()
        mine = [each for each in self._told.values() if each["decisionID"].startswith(decision)]
        return [each["reason"] for each in mine]

    def begun(self, to: str) -> str | None:
        """The decision that is under way to a fraction, as the status writes it."""
        pending = self.status().get("pending", {})
        if pending.get("to", {}).get("gpuMemoryUtilization") != to or "revertOf" in pending:
            return None
        return str(pending["decisionID"])

    def canary(self) -> str:
        """The first pod of the change under way."""
        return str(self.status()["pending"]["pods"][0]["name"])

    def over(self) -> bool:
        """No change is under way."""
        return "pending" not in self.status()

    def settled_at(self, fraction: str) -> bool:
        """No change is under way, and every engine that serves has the fraction."""
        return self.over() and {float(each) for each in self.fractions().values()} == {
            float(fraction)
        }

    def serves(self, name: str, fraction: str) -> bool:
        """Whether a pod takes requests with a fraction."""
        shown = self.fractions().get(name)
        return shown is not None and float(shown) == float(fraction) and self.ready(name)

    def quarantined(self) -> dict[str, str]:
        """Reason by fraction."""
        left = self.status().get("quarantine", ())
        return {each["values"]["gpuMemoryUtilization"]: each["reason"] for each in left}

    def holds(self) -> list[str]:
        """What holds the wish back."""
        return [each["reason"] for each in self.status().get("holds", ())]

    def pods(self) -> dict[str, Object]:
        """The engines' pods by name."""
        return {pod["metadata"]["name"]: pod for pod in self.stack.objects().all("pod")}

    def ready(self, name: str) -> bool:
        """Whether a pod takes requests."""
        return takes_requests(self.pods()[name])

    def identities(self) -> dict[str, tuple[str, int]]:
        """UID and restarts by pod."""
        return {
            name: (pod["metadata"]["uid"], pod["status"]["containerStatuses"][0]["restartCount"])
            for name, pod in self.pods().items()
        }

    def fractions(self) -> dict[str, str]:
        """The fraction in force by pod, of those that serve, as vLLM shows it."""
        return {name: shown[0] for name, shown in self._cache().items()}

    def blocks(self) -> dict[str, int]:
        """KV blocks by pod."""
        return {name: shown[1] for name, shown in self._cache().items()}

    def _cache(self) -> dict[str, tuple[str, int]]:
        engines = {n: Engine(pod["status"]["podIP"]) for n, pod in self.pods().items()}
        shown = {name: engine.cache_config() for name, engine in engines.items()}
        return {name: each for name, each in shown.items() if each is not None}

    def workload(self) -> str:
        """What people wrote of Deployment and ReplicaSets, as the API server has it."""
        names = ("deployments", "replicasets")
        path = f"/apis/apps/v1/namespaces/{NAMESPACE}"
        found = {name: json.loads(self.stack.cluster.get(f"{path}/{name}")) for name in names}
        items = [each for name in names for each in found[name]["items"]]
        return json.dumps([[each["metadata"]["generation"], each["spec"]] for each in items])

    def both_serve(self) -> bool:
        """Two pods, both Ready."""
        pods = self.pods()
        return len(pods) == 2 and all(map(takes_requests, pods.values()))

    def wait_for(self, what: str, reached: Callable[[], object], seconds: float) -> None:
        """As the stack does; what is told meanwhile is remembered."""

        def looked() -> object:
            self.status()
            return reached()

        self.stack.wait_for(what, looked, seconds)

    def patch(self, **spec: Any) -> None:
        """Merge into the policy's spec."""
        self.stack.patch_policy(POLICY, spec)

    def operator_leads(self) -> bool:
        """Whether an operator's pod is there and Ready."""
        return any(map(takes_requests, self.stack.objects(RELEASE).all("pod")))
