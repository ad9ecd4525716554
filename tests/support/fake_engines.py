"""Engines faked at the edge of the protocol: two pages of metrics, and the knob document followed.

The Deployment, its pods and the ConfigMap are real objects of a real API server; only what would
run inside the pods is played here. Counters move with real time, so that rates are real.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from evictune.act.knobs import parse_document
from evictune.api.knobs import FILE_NAME, STOCK_LRU, KnobValues, config_map_name
from evictune.kube import APPLY_PATCH, MERGE_PATCH, KubeApi

from tests.support.engine_load import FAST, SLOW, Load
from tests.support.server import Server

PORTS = (8000, 9410)
BOUNDS = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0, 1.25, 1.5, 2.0, 5.0)


def better_with_tlru(values: KnobValues) -> Load:
    """Stock LRU misses the target; any xi meets it."""
    return SLOW if values.stock else FAST


@dataclass
class FakeEngine:
    """One pod's engine and plugin, on an address of its own.

    delay: seconds until a changed document is followed, as a kubelet takes to update its mount.
    """

    api: KubeApi
    namespace: str
    config_map: str
    behave: Callable[[KnobValues], Load]
    delay: float = 0.0
    address: str = ""
    clock: Callable[[], float] = time.time
    values: KnobValues = STOCK_LRU
    revision: int = 0
    counters: dict[str, float] = field(default_factory=dict)
    buckets: list[float] = field(default_factory=lambda: [0.0] * (len(BOUNDS) + 1))
    _seen: float = 0.0
    _found: tuple[KnobValues, int] = (STOCK_LRU, 0)
    _found_time: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _servers: list[Server] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._seen = self.clock()

    def serve(self) -> None:
        """Listen on both ports of a free loopback address."""
        while not self._servers:
            self.address = ".".join(["127", *(str(random.randint(64, 254)) for _ in range(3))])
            try:
                self._servers = [self._listen(port) for port in PORTS]
            except OSError:
                continue
        for server in self._servers:
            threading.Thread(target=server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Stop listening."""
        for server in self._servers:
            server.shutdown()
            server.server_close()

    def page(self, port: int) -> str:
        """The page's text, after the time since the last one has passed."""
        with self._lock:
            self._advance()
            lines = self._engine() if port == PORTS[0] else self._plugin()
            return "\n".join(lines) + "\n"

    def _advance(self) -> None:
        now = self.clock()
        passed, self._seen = now - self._seen, now
        load = self.behave(self.values)
        for seconds, rate in load.ttft:
            place = sum(bound < seconds for bound in BOUNDS)
            self.buckets[place] += rate * passed
            self._count("ttft", seconds * rate * passed)
        self._count("computed", load.computed * passed)
        self._count("queried", load.queried * passed)
        self._count("hits", (load.queried - load.computed) * passed)
        self._count("prefill_seconds", load.computed * passed / 5000.0)
        self._count("preemptions", load.preemptions * passed)
        for region, rate in load.evicted:
            self._count(region, rate * passed)
        self._follow(now)

    def _count(self, name: str, amount: float) -> None:
        self.counters[name] = self.counters.get(name, 0.0) + amount

    def _follow(self, now: float) -> None:
        """What the plugin does with the mounted document."""
        path = f"/api/v1/namespaces/{self.namespace}/configmaps/{self.config_map}"
        body = self.api.get_or_none(path) or {}
        document = parse_document((body.get("data") or {}).get(FILE_NAME))
        found = (STOCK_LRU, 0)
        if document is not None and document.expires > now:
            found = (document.values, document.revision)
        if found != self._found:
            self._found, self._found_time = found, now
        if now - self._found_time >= self.delay:
            self.values, self.revision = found

    def _engine(self) -> Iterator[str]:
        labels = 'engine="0",model_name="tiny"'
        total = 0.0
        for bound, count in zip([*BOUNDS, "+Inf"], self.buckets, strict=True):
            total += count
            yield f'vllm:time_to_first_token_seconds_bucket{{le="{bound}",{labels}}} {int(total)}'
        load = self.behave(self.values)
        gauges = {
            "kv_cache_usage_perc": load.kv_usage,
            "num_requests_running": load.running,
            "num_requests_waiting": load.waiting,
        }
        series = {
            "time_to_first_token_seconds_sum": self.counters["ttft"],
            "time_to_first_token_seconds_count": int(total),
            "num_preemptions_total": self.counters.get("preemptions", 0.0),
            "prefix_cache_queries_total": self.counters["queried"],
            "prefix_cache_hits_total": self.counters["hits"],
            "request_queue_time_seconds_sum": total * 0.001,
            "request_queue_time_seconds_count": int(total),
            "request_prefill_time_seconds_sum": self.counters["prefill_seconds"],
            "request_prefill_kv_computed_tokens_sum": self.counters["computed"],
        }
        for name, value in {**gauges, **series}.items():
            yield f"vllm:{name}{{{labels}}} {value}"
        yield f'vllm:prompt_tokens_by_source_total{{source="local_compute",{labels}}} ' + str(
            self.counters["computed"]
        )
        yield 'vllm:cache_config_info{engine="0",block_size="32",num_gpu_blocks="200"} 1'

    def _plugin(self) -> Iterator[str]:
        xi = "" if self.values.stock else str(self.values.xi_tokens)
        q_hat = "" if self.values.stock else str(self.values.q_hat_tokens or 0)
        policy = "lru" if self.values.stock else "t-lru"
        yield (
            f'evictune_policy_info{{policy="{policy}",xi_tokens="{xi}",q_hat_tokens="{q_hat}",'
            f'revision="{self.revision}",engine="0"}} 1'
        )
        yield 'evictune_engine_eligible{engine="0",reason=""} 1'
        for region in ("lru", "tel-safe", "protected"):
            count = int(self.counters.get(region, 0.0))
            yield f'evictune_evicted_blocks_total{{engine="0",region="{region}"}} {count}'

    def _listen(self, port: int) -> Server:
        engine = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                text = engine.page(port).encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        return Server((self.address, port), Handler)


class FakeDeployment:
    """A Deployment whose pods the real controllers make and whose engines are faked."""

    def __init__(
        self,
        api: KubeApi,
        namespace: str,
        name: str,
        behave: Callable[[KnobValues], Load] = better_with_tlru,
        replicas: int = 1,
        delay: float = 0.0,
    ) -> None:
        self._api = api
        self.namespace = namespace
        self.name = name
        config_map = config_map_name("Deployment", name)
        self.engines = [
            FakeEngine(api, namespace, config_map, behave, delay) for _ in range(replicas)
        ]

    def __enter__(self) -> FakeDeployment:
        for engine in self.engines:
            engine.serve()
        path = f"/apis/apps/v1/namespaces/{self.namespace}/deployments/{self.name}"
        self._api.request(
            "PATCH",
            path,
            body=self._manifest(),
            content_type=APPLY_PATCH,
            query={"fieldManager": "test"},
        )
        for engine, pod in zip(self.engines, self._pods(), strict=True):
            self._make_ready(pod, engine.address)
        self._await_complete(path)
        return self

    def __exit__(self, *_: object) -> None:
        for engine in self.engines:
            engine.close()

    def _manifest(self) -> dict[str, Any]:
        labels = {"app": self.name}
        container = {"name": "vllm", "image": "vllm/vllm-openai", "args": ["--model=tiny"]}
        return {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": self.name, "namespace": self.namespace},
            "spec": {
                "replicas": len(self.engines),
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    # No scheduler shall place these: nothing is to run them.
                    "spec": {"schedulerName": "nobody", "containers": [container]},
                },
            },
        }

    def _pods(self) -> list[dict[str, Any]]:
        path = f"/api/v1/namespaces/{self.namespace}/pods"
        for _ in range(300):
            found = list(self._api.items(path, {"labelSelector": f"app={self.name}"}))
            if len(found) == len(self.engines):
                return found
            time.sleep(0.1)
        raise TimeoutError(f"the pods of {self.name} were not made")

    def _make_ready(self, pod: dict[str, Any], address: str) -> None:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 60))
        conditions = [
            {"type": kind, "status": "True", "lastTransitionTime": now}
            for kind in ("Ready", "ContainersReady", "Initialized", "PodScheduled")
        ]
        status = {
            "phase": "Running",
            "conditions": conditions,
            "podIP": address,
            "podIPs": [{"ip": address}],
        }
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod['metadata']['name']}/status"
        self._api.request("PATCH", path, body={"status": status}, content_type=MERGE_PATCH)

    def _await_complete(self, path: str) -> None:
        for _ in range(300):
            status = self._api.get(path).get("status") or {}
            if status.get("availableReplicas") == len(self.engines):
                return
            time.sleep(0.1)
        raise TimeoutError(f"{self.name} did not become available: {json.dumps(status)}")
