"""What many policies cost the operator: 50, then 500, each with a Deployment of ten engines.

Real: the API server with its controllers, the operator as a process of its own, and every object.
Played: the nodes (kwok), and what Prometheus and the engines' pages would answer. Everything is
healthy, so that what is measured is the cost of looking. Times are CPU time of the operator alone.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from evictune.api.policy import GROUP, VERSION
from evictune.kube import KubeApi, load_configuration, policies_path

from localcluster.controlplane import ControlPlane
from localcluster.simulatednodes import simulated_nodes
from tests.perf.entry import entry
from tests.support.operator_process import OperatorProcess, eventually
from tests.support.operator_scene import install_crd

COUNTS = (50, 500)
ENGINES = 10
NAMESPACES = 10
INTERVAL = 30.0
# Until every policy was looked at several times, and the window's histories are as long as ticks.
SETTLE = 2 * INTERVAL
MEASURED = 3 * INTERVAL
# The goals for the largest count. The operator shares its processors with all that is played.
CORES, MEGABYTES, QUERIES, LAG = 0.5, 300.0, 20.0, 1.0
# What a policy may cost, of what an idle operator does, and of what one of few policies does:
# linear, and a tenth for what shared processors and their caches differ by.
OF_IDLE = {"cores": 1.0, "megabytes": 0.01}
OF_FEW = 1.1
PATIENCE = 900.0


@dataclass(frozen=True)
class Cost:
    """cores: processors busy; megabytes: resident; queries: of a round; lag: seconds, p99."""

    policies: int
    cores: float
    megabytes: float
    queries: float
    lag: float


def results() -> Iterator[dict[str, Any]]:
    """The entries, once everything was measured."""
    idle, few, many = measure()
    yield entry("operator: cores busy", "goal", CORES, many.cores, None, "cores")
    yield entry("operator: memory", "goal", MEGABYTES, many.megabytes, None, "MB")
    yield entry("operator: queries of a round", "goal", QUERIES, many.queries, None, "queries")
    yield entry("operator: tick lag p99", "goal", LAG, many.lag, None, "s")
    for name, unit, scale in (("cores", "ms/s", 1000.0), ("megabytes", "MB", 1.0)):
        nothing = scale * getattr(idle, name)
        of_few, of_many = (
            (scale * getattr(cost, name) - nothing) / cost.policies for cost in (few, many)
        )
        told, of = f"operator: {name}, a policy of {many.policies}", f"one of {few.policies}"
        yield entry(f"{told} / idle", "an idle operator", nothing, of_many, OF_IDLE[name], unit)
        yield entry(f"{told} / {of}", of, of_few, of_many, OF_FEW, unit)


def measure() -> list[Cost]:
    """Idle, then with each of COUNTS."""
    with (
        tempfile.TemporaryDirectory() as directory,
        ControlPlane(Path(directory)) as cluster,
        simulated_nodes(cluster, max(COUNTS) * ENGINES // 1000 + 1),
        _stand_in() as stand_in,
    ):
        install_crd(cluster)
        fleet = _Fleet(cluster, stand_in)
        # The stand-in, the API server and what makes the pods share the operator's machine.
        sources = {"default": {"prometheus": {"url": f"{stand_in}/", "timeout": "15s"}}}
        costs = []
        with OperatorProcess(Path(directory), cluster.kubeconfig, sources) as operator:
            for count in (0, *COUNTS):
                fleet.grow(count)
                time.sleep(SETTLE)
                costs.append(_cost(operator, stand_in, count))
                print(f"# {costs[-1]}", flush=True)
        return costs


@contextmanager
def _stand_in() -> Iterator[str]:
    """The address of a stand-in's process."""
    command = [sys.executable, "-m", "tests.support.fleet_stand_in"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


class _Fleet:
    """Deployments and their policies, over some namespaces."""

    def __init__(self, cluster: ControlPlane, stand_in: str) -> None:
        self._api = KubeApi(load_configuration(str(cluster.kubeconfig)), connections=8)
        self._stand_in = stand_in
        self._size = 0
        for number in range(NAMESPACES):
            self._post("/api/v1/namespaces", {"metadata": {"name": f"fleet-{number}"}})

    def grow(self, size: int) -> None:
        """Add Deployments until there are `size`, then their policies; wait for the first ticks."""
        new = range(self._size, size)
        self._size = size
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(self._deploy, new))
            eventually(self._all_ready, "every pod ready", PATIENCE)
            self._tell_stand_in()
            list(pool.map(self._follow, new))
        eventually(self._all_followed, "every policy looked at", PATIENCE)

    def _deploy(self, number: int) -> None:
        name, namespace = _names(number)
        port = self._stand_in.rpartition(":")[2]
        container = {"name": "vllm", "image": "vllm/vllm-openai", "args": ["--model=tiny"]}
        body = {
            "metadata": {"name": name},
            "spec": {
                "replicas": ENGINES,
                "selector": {"matchLabels": {"app": name}},
                "template": {
                    "metadata": {
                        "labels": {"app": name},
                        "annotations": {"evictune.io/metrics-port": port},
                    },
                    "spec": {"containers": [container]},
                },
            },
        }
        self._post(f"/apis/apps/v1/namespaces/{namespace}/deployments", body)

    def _follow(self, number: int) -> None:
        name, namespace = _names(number)
        spec = {
            "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "mode": "Auto",
            "slo": {"ttft": {"quantile": "0.99", "threshold": "800ms"}},
            "knobs": {
                "tlru": {
                    "xiTokens": {"min": 1024, "max": 65536},
                    "qHatTokens": {"min": 0, "max": 4096},
                }
            },
            "behavior": {"interval": f"{INTERVAL:g}s"},
        }
        body = {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": "EvictionPolicy",
            "metadata": {"name": name},
            "spec": spec,
        }
        self._post(policies_path(namespace), body)

    def _tell_stand_in(self) -> None:
        pods = [[p["metadata"]["namespace"], p["metadata"]["name"]] for p in self._pods()]
        body = json.dumps({"pods": pods}).encode()
        request = urllib.request.Request(f"{self._stand_in}/pods", body, method="PUT")
        urllib.request.urlopen(request, timeout=120).close()

    def _all_ready(self) -> bool:
        wanted = [each["status"].get("availableReplicas") for each in self._deployments()]
        time.sleep(2)
        return wanted == [ENGINES] * self._size

    def _all_followed(self) -> bool:
        time.sleep(2)
        found = list(self._api.items(policies_path(None)))
        regimes = [(each.get("status") or {}).get("regime", {}).get("name") for each in found]
        return regimes == ["Healthy"] * self._size

    def _pods(self) -> Iterator[dict[str, Any]]:
        return self._api.items("/api/v1/pods")

    def _deployments(self) -> Iterator[dict[str, Any]]:
        return self._api.items("/apis/apps/v1/deployments")

    def _post(self, path: str, body: dict[str, Any]) -> None:
        self._api.request("POST", path, body=body)


def _names(number: int) -> tuple[str, str]:
    return f"chat-{number}", f"fleet-{number % NAMESPACES}"


def _cost(operator: OperatorProcess, stand_in: str, policies: int) -> Cost:
    """Over MEASURED seconds from now. Raises RuntimeError if a tick failed meanwhile."""
    process = psutil.Process(operator.pid)
    before, asked, busy = operator.metrics(), _asked(stand_in), _cpu(process)
    began = time.monotonic()
    memory = 0
    while time.monotonic() < began + MEASURED:
        time.sleep(1)
        memory = max(memory, process.memory_info().rss)
    cores = (_cpu(process) - busy) / (time.monotonic() - began)
    after, asked_since = operator.metrics(), _asked(stand_in)
    grown = {key: value - before.get(key, 0.0) for key, value in after.items()}
    failures = sum(v for (name, _), v in grown.items() if name == "evictune_tick_failures_total")
    if failures:
        raise RuntimeError(f"{failures:g} ticks failed: {operator.log.read_text()[-2000:]}")
    rounds = max((asked_since[name] - asked.get(name, 0) for name in asked_since), default=0)
    queries = sum(asked_since.values()) - sum(asked.values())
    return Cost(policies, cores, memory / 1e6, queries / rounds if rounds else 0.0, _lag(grown))


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _asked(stand_in: str) -> dict[str, int]:
    with urllib.request.urlopen(f"{stand_in}/asked", timeout=60) as answer:
        found: dict[str, int] = json.load(answer)
        return found


def _lag(grown: dict[tuple[str, frozenset[tuple[str, str]]], float]) -> float:
    """The upper bound of the bucket with the 99th percentile, seconds."""
    buckets: dict[float, float] = {}
    for (name, labels), count in grown.items():
        if name == "evictune_tick_lag_seconds_bucket":
            bound = float(dict(labels)["le"])
            buckets[bound] = buckets.get(bound, 0.0) + count
    total = max(buckets.values(), default=0.0)
    return next((b for b in sorted(buckets) if total and buckets[b] >= 0.99 * total), 0.0)
