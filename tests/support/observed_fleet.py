"""Pods that exist only as pages of a local server: what an Observer is tested against."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from evictune.api.observation import Observation, TargetState, Unknown
from evictune.api.parse import parse_policy
from evictune.api.policy import EvictionPolicy
from evictune.api.reasons import Reason
from evictune.api.sources import SourceDefinition, SourceKind
from evictune.observe.dialects import Engine
from evictune.observe.observer import Observer
from evictune.observe.snapshot import PodKey
from evictune.observe.target import EnginePod, Target

from tests.support.page_server import Answer, Asked, PageServer, serve

CAPTURES = Path(__file__).parents[1] / "data/exposition"
PLUGIN = """\
evictune_policy_info{policy="t-lru",xi_tokens="512",q_hat_tokens="200",revision="7",engine="0"} 1
evictune_engine_eligible{engine="0",reason=""} 1
evictune_evicted_blocks_total{engine="0",region="lru"} 3
evictune_evicted_blocks_total{engine="0",region="tel-safe"} 40
evictune_evicted_blocks_total{engine="0",region="protected"} 0
"""
DIRECT = {"default": SourceDefinition("default", SourceKind.DIRECT, timeout=2.0)}


def capture(moment: str, page: str = "engine", of: str = "vllm-0.32.0") -> str:
    return (CAPTURES / of / f"{page}-{moment}.txt").read_text("utf-8")


def counted(moment: str, sample: str, page: str = "engine") -> float:
    """A number as it stands on a captured page; `sample` matches the line up to it."""
    (found,) = re.findall(rf"^{sample}[^}}]*\}} (\S+)$", capture(moment, page), re.MULTILINE)
    return float(found)


def policy(
    window: str = "1m", source: str = "default", knobs: dict[str, Any] | None = None
) -> EvictionPolicy:
    ttft = {"quantile": "0.9", "threshold": "50ms", "window": window, "minRequests": 5}
    metadata = {
        "namespace": "serve-a",
        "name": "owl",
        "uid": "p",
        "generation": 1,
        "resourceVersion": "1",
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    spec = {
        "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "owl"},
        "slo": {"ttft": ttft},
        "metrics": {"source": source},
        "knobs": knobs or {},
    }
    return parse_policy({"metadata": metadata, "spec": spec})


class Fleet:
    """Pods that all live at one server, told apart by their paths; a clock that the test turns."""

    def __init__(self, server: PageServer, *names: str) -> None:
        self.now = 1000.0
        self.server = server
        self.pages: dict[str, Answer] = {}
        self.problem: Reason | None = None
        self.generation = 1
        self.names = names
        server.respond = self._respond
        for name in names:
            self.engine(name, capture("start"))
            self.plugin(name, PLUGIN)
        self.observer = Observer(self, DIRECT, lambda: self.now)

    def engine(self, pod: str, text: str, **fields: Any) -> None:
        self.pages[f"/{pod}/engine"] = Answer(text, **fields)

    def plugin(self, pod: str, text: str, **fields: Any) -> None:
        self.pages[f"/{pod}/plugin"] = Answer(text, **fields)

    async def target(self, policy: EvictionPolicy) -> Target:
        if self.problem is not None:
            return Target(TargetState(found=False, problem=self.problem, message="gone"))
        pods = tuple(
            EnginePod(
                PodKey("serve-a", name),
                Engine.VLLM,
                f"{self.server.url}/{name}/engine",
                f"{self.server.url}/{name}/plugin",
                uid=f"{name}-{self.generation}",
            )
            for name in self.names
        )
        return Target(TargetState(found=True, desired_replicas=len(pods)), pods)

    async def observe(self, after: float = 0.0, **changes: Any) -> Observation:
        self.now += after
        return await self.observer.observe(policy(**changes))

    def _respond(self, asked: Asked) -> Answer:
        return self.pages.get(asked.path, Answer(status=404))


Scenario = Callable[[Fleet], Awaitable[None]]


def run(scenario: Scenario, *names: str) -> None:
    async def main(server: PageServer) -> None:
        fleet = Fleet(server, *(names or ("owl-0",)))
        try:
            await scenario(fleet)
        finally:
            await fleet.observer.close()

    with serve(lambda asked: Answer(status=404)) as server:
        asyncio.run(main(server))


def unknown(reading: object) -> Unknown:
    """The reading, which must be Unknown."""
    assert isinstance(reading, Unknown), reading
    return reading
