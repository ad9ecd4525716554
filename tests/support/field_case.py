"""A field case on the public surface: pages or a store's answers in, readings and status out."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from evictune.api.decision import Decision, Memory
from evictune.api.observation import Observation, TargetState
from evictune.api.parse import parse_policy
from evictune.api.policy import EvictionPolicy
from evictune.api.sources import SourceDefinition, SourceKind
from evictune.api.status import status_of
from evictune.decide import decide
from evictune.observe.dialects import Engine
from evictune.observe.observer import Observer
from evictune.observe.snapshot import PodKey
from evictune.observe.target import EnginePod, Target

from tests.support.page_server import Answer, Asked, PageServer, serve

NAMESPACE = "serve-a"
NOW = 1_796_000_000.0
TICK = 15.0
# A busy machine may take long for a look; only tests of time limits are in a hurry.
PATIENCE = 30.0
BUCKETS = ("0.25", "0.5", "1", "5", "+Inf")

Json = dict[str, Any]


def case_policy(**changes: Any) -> EvictionPolicy:
    """The collection's base resource, in our terms."""
    ttft = {"quantile": "0.99", "threshold": "800ms", "window": "5m", "minRequests": 50}
    spec: Json = {
        "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "owl-8b"},
        "mode": "Auto",
        "slo": {
            "ttft": ttft | changes.pop("ttft", {}),
            "maxPreemptionsPerSecond": "0.2",
            "maxKVCacheUsage": "0.92",
        },
        "knobs": {
            "tlru": {"xiTokens": {"min": 1, "max": 4000}, "qHatTokens": {"min": 200, "max": 200}}
        },
        "behavior": {"interval": "30s", "settle": "5m", "cooldown": "10m"},
    }
    metadata = {
        "namespace": NAMESPACE,
        "name": "owl-chat",
        "uid": "0a1b2c3d",
        "generation": 1,
        "resourceVersion": "1",
        "creationTimestamp": "2026-11-01T00:00:00Z",
    }
    return parse_policy({"metadata": metadata, "spec": spec | changes})


@dataclass(frozen=True)
class Seen:
    """One look, and what came of it. `status` went through JSON as the API server takes it."""

    readings: Observation
    decision: Decision
    status: Json

    def condition(self, kind: str) -> tuple[str, str, str]:
        """status, reason and message of a condition."""
        (found,) = [each for each in self.status["conditions"] if each["type"] == kind]
        return found["status"], found["reason"], found["message"]

    @property
    def regime(self) -> str:
        """The diagnosis."""
        return str(self.status["regime"]["name"])

    @property
    def acts(self) -> bool:
        """Whether a change was begun."""
        return "pending" in self.status


class Scene:
    """A target whose pods live at one server: engines' pages below /POD/, a store below /api/v1."""

    def __init__(self, server: PageServer, *pods: str, engine: Engine = Engine.VLLM) -> None:
        self.server = server
        self.pods = list(pods) or ["owl-8b-a"]
        self.engine = engine
        self.now = 0.0
        self.generation = 0
        self.policy = case_policy()
        self.memory = Memory()
        self.store = Store()
        self._pages: dict[str, Answer] = {}
        server.respond = self._respond
        self.use(SourceDefinition("default", SourceKind.DIRECT, timeout=PATIENCE))

    def use(self, source: SourceDefinition) -> None:
        """Read from this source from now on."""
        self.observer = Observer(self, {source.name: source}, lambda: self.now)

    def use_store(self, **options: Any) -> None:
        """Read from the store."""
        kind, url = SourceKind.PROMETHEUS, self.server.url
        options = {"url": url, "timeout": PATIENCE, **options}
        self.use(SourceDefinition("default", kind, **options))

    def page(self, pod: str, text: str, **fields: Any) -> None:
        """What an engine's page says from now on."""
        self._pages[f"/{pod}/metrics"] = Answer(text, **fields)

    def plugin(self, pod: str, text: str) -> None:
        """What the plugin's page of a pod says from now on."""
        self._pages[f"/{pod}/plugin"] = Answer(text)

    async def target(self, policy: EvictionPolicy) -> Target:
        """The API server's word."""
        del policy
        pods = tuple(
            EnginePod(
                PodKey(NAMESPACE, name),
                self.engine,
                f"{self.server.url}/{name}/metrics",
                f"{self.server.url}/{name}/plugin",
                uid=f"{name}-{self.generation}",
            )
            for name in sorted(self.pods)
        )
        count = len(pods)
        return Target(TargetState(True, desired_replicas=count, ready_replicas=count), pods)

    async def look(self, after: float = 0.0) -> Seen:
        """One tick, `after` seconds later."""
        self.now += after
        observation = await self.observer.observe(self.policy)
        decision = decide(self.policy, self.memory, observation, NOW + self.now)
        self.memory = decision.memory
        status = status_of(self.policy, decision, observation, NOW + self.now)
        # The API server refuses NaN and Infinity: neither is JSON.
        return Seen(observation, decision, json.loads(json.dumps(status, allow_nan=False)))

    def _respond(self, asked: Asked) -> Answer:
        if asked.path.endswith("/api/v1/query"):
            return self.store.respond(asked)
        return self._pages.get(asked.path, Answer(status=404))


class Store:
    """A Prometheus that gives the answers it was told, by metric; of alternatives the first."""

    def __init__(self) -> None:
        self.vectors: dict[str, list[Json]] = {}
        self.fault: Answer | None = None
        self.time = NOW

    def put(self, base: str, value: str, pod: str = "owl-8b-a", **labels: str) -> None:
        """One element more of the answer about a metric."""
        labels = {"namespace": NAMESPACE, "pod": pod, "engine": "0", "series": base} | labels
        element = {"metric": labels, "value": [self.time, value]}
        self.vectors.setdefault(base, []).append(element)

    def respond(self, asked: Asked) -> Answer:
        """The answer to a query of ours."""
        if self.fault is not None:
            return self.fault
        found: dict[tuple[str, ...], str] = {}
        result = []
        for base in re.findall(r'"series", "([^"]+)"', asked.parameters["query"]):
            for element in self.vectors.get(base, ()):
                labels = element["metric"]
                rank = tuple(labels.get(key, "") for key in ("namespace", "pod", "engine"))
                if found.setdefault(rank, base) == base:
                    result.append(element)
        return vector(result)


def vector(result: list[Json], **more: Any) -> Answer:
    """A successful answer with a vector."""
    body = {"status": "success", "data": {"resultType": "vector", "result": result}, **more}
    return Answer(json.dumps(body), content_type="application/json")


def ttft_page(counts: Mapping[str, float], labels: str = 'engine="0"') -> str:
    """The lines of the TTFT histogram: cumulative counts by bound."""
    name = "vllm:time_to_first_token_seconds_bucket"
    return "".join(f'{name}{{{labels},le="{le}"}} {count}\n' for le, count in counts.items())


def engine_page(labels: str = 'engine="0",model_name="owl-8b"', **values: float) -> str:
    """Lines of a page: `kv_cache_usage_perc=0.5` and the like."""
    return "".join(f"vllm:{name}{{{labels}}} {value}\n" for name, value in values.items())


def play(scenario: Callable[[Scene], Awaitable[None]], *pods: str, **options: Any) -> None:
    """Run a scenario with a scene of these pods."""

    async def main(server: PageServer) -> None:
        scene = Scene(server, *pods, **options)
        try:
            await scenario(scene)
        finally:
            await scene.observer.close()

    with serve(lambda asked: Answer(status=404)) as server:
        asyncio.run(main(server))
