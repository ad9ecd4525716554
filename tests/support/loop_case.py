"""A field case through the whole loop: objects and pages in; requests, status and Events out.

The API server is in memory, time is turned by the test, and engines are faked at the edge of the
protocol: their pages are text as the real ones write it, and they follow the knob document.
Everything between is the operator: reading the target, observing, deciding, writing.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast
from urllib.parse import urlsplit

from evictune.api.knobs import KnobValues, config_map_name
from evictune.api.policy import FleetMode
from evictune.api.sources import OperatorConfiguration
from evictune.index import PolicyIndex, entry_of
from evictune.kube import KubeApi
from evictune.observe.observer import Observer
from evictune.observe.pages import PageError
from evictune.observe.target import ApiClusterReader
from evictune.operator_metrics import OperatorMetrics
from evictune.tick import Outcome, Ticker

from tests.support.fake_api import FakeApi
from tests.support.fake_engines import FakeEngine, Load, better_with_tlru

EPOCH = 1_796_000_000.0
NAMESPACE = "serve-a"
TARGET = "owl-8b"
CONFIG_MAP = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{config_map_name('Deployment', TARGET)}"
DEPLOYMENT = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{TARGET}"
REPLICA_SET = f"/apis/apps/v1/namespaces/{NAMESPACE}/replicasets/{TARGET}-1"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
POLICIES = f"/apis/evictune.io/v1alpha1/namespaces/{NAMESPACE}/evictionpolicies"
EVENTS = f"/api/v1/namespaces/{NAMESPACE}/events"

Json = dict[str, Any]
Behaviour = Callable[[KnobValues], Load]


def policy_body(name: str = "owl-chat", uid: str = "0a1b2c3d-1", **spec: Any) -> Json:
    """The collection's base resource, in our terms."""
    return {
        "apiVersion": "evictune.io/v1alpha1",
        "kind": "EvictionPolicy",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "uid": uid,
            "generation": 1,
            "creationTimestamp": "2026-11-01T00:00:00Z",
        },
        "spec": {
            "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": TARGET},
            "mode": "Auto",
            "slo": {
                "ttft": {
                    "quantile": "0.95",
                    "threshold": "800ms",
                    "window": "5m",
                    "minRequests": 50,
                },
                "maxPreemptionsPerSecond": "0.2",
                "maxKVCacheUsage": "0.92",
            },
            "knobs": {
                "tlru": {
                    "xiTokens": {"min": 32, "max": 4096},
                    "qHatTokens": {"min": 200, "max": 200},
                }
            },
            "behavior": {"interval": "30s", "settle": "5m", "cooldown": "10m", "knobTTL": "1h"},
            **spec,
        },
    }


class LoopCase:
    """One target, its policy `owl-chat`, and the operator's loop about it. Times in seconds."""

    def __init__(self, behave: Behaviour = better_with_tlru, pods: int = 1, **spec: Any) -> None:
        self.now = EPOCH
        self.api = FakeApi()
        self.behave = behave
        self.engines: dict[str, FakeEngine] = {}
        self.deaf: set[str] = set()
        self.fleet = FleetMode.AUTO
        self.outcomes: list[Outcome | None] = []
        self._pool = ThreadPoolExecutor(2)
        self.scale(pods)
        self.put_policy(policy_body(**spec))
        self.start()

    # The world.

    def put_policy(self, body: Json) -> None:
        """Create or replace a policy; its status stays."""
        path = f"{POLICIES}/{body['metadata']['name']}"
        old = self.api.objects.get(path, {})
        kept = {"status": old["status"]} if "status" in old else {}
        self.api.put(path, body | kept)

    def edit(self, **spec: Any) -> None:
        """A person's edit of the policy's spec."""
        body = self.policy
        body["metadata"]["generation"] += 1
        self.api.put(f"{POLICIES}/owl-chat", body | {"spec": body["spec"] | spec})

    def scale(self, pods: int) -> None:
        """So many ready pods, the rollout complete. New ones start on stock LRU."""
        names = [f"{TARGET}-1-{number}" for number in range(pods)]
        for name in [each for each in self.engines if each not in names]:
            self.remove_pod(name)
        for name in names:
            if name not in self.engines:
                self.add_pod(name)
        self.put_deployment(pods)

    def put_deployment(self, replicas: int, **status: Any) -> None:
        """The Deployment with its status; by default everything is up to date."""
        labels = {"app": TARGET}
        counts = dict.fromkeys(
            ("replicas", "updatedReplicas", "availableReplicas", "readyReplicas"), replicas
        )
        old = self.api.objects.get(DEPLOYMENT, {"metadata": {}})["metadata"]
        metadata = {"name": TARGET, "uid": "deployment", "generation": 1} | {
            key: value for key, value in old.items() if key == "annotations"
        }
        spec = {"replicas": replicas, "selector": {"matchLabels": labels}}
        status = {"observedGeneration": 1, **counts, **status}
        self.api.put(DEPLOYMENT, {"metadata": metadata, "spec": spec, "status": status})
        owner = {"name": f"{TARGET}-1", "uid": "set", "ownerReferences": [{"uid": "deployment"}]}
        self.api.put(REPLICA_SET, {"metadata": owner})

    def add_pod(self, name: str, **metadata: Any) -> None:
        """One more ready pod with an engine."""
        api = cast("KubeApi", self.api)
        config_map = CONFIG_MAP.rpartition("/")[2]
        self.engines[name] = FakeEngine(
            api, NAMESPACE, config_map, lambda values: self.behave(values), clock=lambda: self.now
        )
        self.api.put(f"{PODS}/{name}", pod_body(name, **metadata))

    def remove_pod(self, name: str) -> None:
        """The pod is gone, and its engine with it."""
        del self.engines[name], self.api.objects[f"{PODS}/{name}"]

    def replace_pod(self, name: str) -> None:
        """A new pod under the same name: another uid, counters at zero, stock LRU."""
        self.remove_pod(name)
        self.add_pod(name, uid=f"uid-of-{name}-{self.now:.0f}")

    # The operator.

    def start(self) -> None:
        """A new operator process: it knows what the API server knows, and nothing else."""
        self.metrics = OperatorMetrics()
        self.index = PolicyIndex()
        sources = OperatorConfiguration().sources
        cluster = ApiClusterReader(cast("KubeApi", self.api), read_seconds=60.0)
        self.observer = Observer(cluster, sources, lambda: self.now)
        # Where a page's bytes come from: everything after that is the observer's own.
        self.observer._pages._read = self._page  # type: ignore[method-assign]
        self.ticker = Ticker(
            cast("KubeApi", self.api),
            self.observer,
            self.index,
            self.metrics,
            self._pool,
            lambda: self.now,
            self.fleet,
        )

    async def tick(self, name: str = "owl-chat") -> Outcome | None:
        """One tick now. Raises what makes a tick fail."""
        for body in [v for k, v in self.api.objects.items() if k.startswith(POLICIES + "/")]:
            self.index.put(entry_of(body))
        outcome = await self.ticker.tick((NAMESPACE, name))
        self.outcomes.append(outcome)
        return outcome

    async def run(self, seconds: float) -> None:
        """Tick as the operator would, for so long."""
        end = self.now + seconds
        while self.now < end:
            outcome = await self.tick()
            interval = outcome.interval if outcome else 30.0
            pause = min(interval, (outcome and outcome.next_check) or interval)
            # The operator would look each second for what it awaits: ten will do.
            self.now = min(end, self.now + max(pause, 10.0))

    # What came of it.

    @property
    def policy(self) -> Json:
        """The policy as it is stored."""
        body = self.api.get_or_none(f"{POLICIES}/owl-chat")
        assert body is not None
        return body

    @property
    def status(self) -> Json:
        """The policy's status, as JSON keeps it."""
        return cast("Json", json.loads(json.dumps(self.policy["status"], allow_nan=False)))

    def condition(self, kind: str) -> tuple[str, str, str]:
        """Status, reason and message of a condition."""
        (found,) = [each for each in self.status["conditions"] if each["type"] == kind]
        return found["status"], found["reason"], found["message"]

    @property
    def regime(self) -> str:
        """The diagnosis."""
        return str(self.status["regime"]["name"])

    @property
    def document(self) -> Json | None:
        """The knob document."""
        body = self.api.get_or_none(CONFIG_MAP)
        return json.loads(body["data"]["knobs.json"]) if body else None

    @property
    def xi(self) -> int | None:
        """What the document sets; None: stock LRU, or no document."""
        return self.document["default"].get("xiTokens") if self.document else None

    @property
    def told(self) -> list[str]:
        """The reasons of all Events, in their order."""
        posts = [body for method, path, body in self.api.requests if path == EVENTS]
        return [str(body["reason"]) for body in posts]

    def changes(self) -> int:
        """How many changes were begun, reverts among them."""
        return self.told.count("Intended")

    def documents(self) -> list[Json]:
        """Every document that was written, in its order; renewals among them."""
        bodies = [body for method, path, body in self.api.requests if path == CONFIG_MAP]
        return [json.loads(body["data"]["knobs.json"]) for body in bodies]

    def written(self) -> set[str]:
        """The collections and subresources that anything was written to."""
        return {_kind_of(path) for _, path, _ in self.api.requests}

    async def _page(self, url: str) -> str:
        parts = urlsplit(url)
        name = next(n for n in self.engines if _address(n) == parts.hostname)
        if parts.port == 9410 and name in self.deaf:
            raise PageError(f"{url}: cannot connect: Connection refused")
        return self.pages(name, int(parts.port or 0))

    def pages(self, name: str, port: int) -> str:
        """A page's text; a test may put its own in place."""
        return self.engines[name].page(port)


def pod_body(name: str, *, ready: bool = True, phase: str = "Running", **metadata: Any) -> Json:
    """A pod of the target's ReplicaSet."""
    owner = {"uid": "set", "controller": True, "kind": "ReplicaSet", "name": f"{TARGET}-1"}
    return {
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "uid": f"uid-of-{name}",
            "labels": {"app": TARGET},
            "ownerReferences": [owner],
            **metadata,
        },
        "spec": {"containers": [{"name": "engine", "image": "vllm/vllm-openai:v0.32.0"}]},
        "status": {
            "phase": phase,
            "podIP": _address(name),
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    }


def _address(name: str) -> str:
    number = int(name.rpartition("-")[2])
    return f"10.0.{number // 250}.{number % 250 + 1}"


def _kind_of(path: str) -> str:
    parts = path.split("/")
    place = parts.index("namespaces") + 2
    return "/".join([parts[place], *parts[place + 2 :]])


def play(scenario: Callable[[LoopCase], Awaitable[None]], case: LoopCase | None = None) -> None:
    """Run a scenario in an event loop of its own."""

    async def main() -> None:
        made = case or LoopCase()
        try:
            await scenario(made)
        finally:
            await made.observer.close()
            made._pool.shutdown()

    asyncio.run(main())
