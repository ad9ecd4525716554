"""A field case about memory through the whole loop: pods that restart in place when asked to.

What a pod does is `memory_world.MemoryPods`; here it stands in the pages and the API objects.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any, cast

from evictune.act.knobs import parse_document
from evictune.api.knobs import FILE_NAME
from evictune.kube import KubeApi
from evictune.tick import Outcome

from tests.support.engine_load import Load
from tests.support.fake_engines import FakeEngine
from tests.support.loop_case import CONFIG_MAP, EPOCH, NAMESPACE, PODS, TARGET, LoopCase, pod_body
from tests.support.memory_world import MANIFEST, MemoryPod, MemoryPods

BOUNDS = {"min": "0.80", "max": "0.94", "step": "0.02"}
LoadOf = Callable[[MemoryPod], Load]


class MemoryCase(LoopCase):
    """`load_of` says what serving is like in a pod; `life` what becomes of its engine."""

    def __init__(self, load_of: LoadOf, pods: int = 2, disruption: Any = None, **spec: Any) -> None:
        names = [f"{TARGET}-1-{number}" for number in range(pods)]
        self.life = MemoryPods(names, EPOCH)
        self.load_of = load_of
        allowed = {"policy": "WhenRedundant"} if disruption is None else disruption
        behavior = {"interval": "30s", "settle": "5m", "cooldown": "10m", "knobTTL": "1h"}
        behavior |= spec.pop("behavior", {})
        knobs = spec.pop("knobs", {"gpuMemoryUtilization": BOUNDS})
        super().__init__(
            pods=pods, knobs=knobs, behavior={**behavior, "disruption": allowed}, **spec
        )

    def pod(self, name: str) -> MemoryPod:
        """One pod's life."""
        return next(pod for pod in self.life.pods if pod.name == name)

    def add_pod(self, name: str, **metadata: Any) -> None:
        """One more ready pod, its load by its own life."""
        self.engines[name] = FakeEngine(
            cast("KubeApi", self.api),
            NAMESPACE,
            CONFIG_MAP.rpartition("/")[2],
            lambda values: self.load_of(self.pod(name)),
            clock=lambda: self.now,
        )
        self.api.put(f"{PODS}/{name}", pod_body(name, **metadata))

    async def tick(self, name: str = "owl-chat") -> Outcome | None:
        """Let the pods live up to now, then tick."""
        self._live()
        return await super().tick(name)

    def _live(self) -> None:
        body = self.api.get_or_none(CONFIG_MAP) or {}
        self.life.document = parse_document((body.get("data") or {}).get(FILE_NAME))
        restarts = [pod.restarts for pod in self.life.pods]
        while self.life.now < self.now:
            self.life.advance(min(10.0, self.now - self.life.now))
        for before, pod in zip(restarts, self.life.pods, strict=True):
            if pod.restarts > before:  # counters begin anew, and T-LRU with them
                self.remove_pod(pod.name)
                self.add_pod(pod.name)
            self._show(pod)
        ready = sum(pod.ready for pod in self.life.pods)
        self.put_deployment(len(self.life.pods), availableReplicas=ready, readyReplicas=ready)

    def _show(self, pod: MemoryPod) -> None:
        body = pod_body(pod.name, ready=pod.ready)
        body["status"]["containerStatuses"] = [
            {"name": "engine", "restartCount": pod.restarts, "ready": pod.ready}
        ]
        self.api.put(f"{PODS}/{pod.name}", body)

    def pages(self, name: str, port: int) -> str:
        """The engine's page with the fraction in force; the plugin's with what became of it."""
        pod, text = self.pod(name), super().pages(name, port)
        if port != 9410:
            blocks = int(10_000 * (pod.fraction - Decimal("0.40")))
            return text.replace(
                'block_size="32",num_gpu_blocks="200"',
                f'block_size="32",num_gpu_blocks="{blocks}",gpu_memory_utilization="{pod.fraction}"',
            )
        tried = "" if pod.tried is None else str(pod.tried)
        return text + (
            'evictune_memory_eligible{reason="",message=""} 1\n'
            f'evictune_memory_fraction{{source="manifest"}} {MANIFEST}\n'
            f'evictune_memory_fraction{{source="in-force"}} {pod.fraction}\n'
            f'evictune_memory_attempt{{state="{pod.state}",fraction="{tried}",revision="{pod.tried_at}",'
            'reason=""} 1\n'
        )

    @property
    def fractions(self) -> list[str]:
        """What the engines have in force."""
        return [str(pod.fraction) for pod in self.life.pods]

    @property
    def held(self) -> list[str]:
        """What status says holds a wish back."""
        return [each["reason"] for each in self.status.get("holds") or ()]
