"""A real Prometheus and the direct source look at the same engines and see the same."""

from __future__ import annotations

import asyncio
import json
import math
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from evictune.api.observation import Interval, Observation, TargetState, Unknown, Value
from evictune.api.parse import parse_policy
from evictune.api.policy import EvictionPolicy
from evictune.api.reasons import Reason
from evictune.api.sources import SourceDefinition, SourceKind
from evictune.observe.dialects import Engine
from evictune.observe.observer import Observer
from evictune.observe.snapshot import PodKey
from evictune.observe.target import EnginePod, Target

from tests.support.page_server import Answer, Asked, PageServer, serve

NAMESPACE = "serve-a"
READY = ("owl-a", "owl-b")
GHOST = "owl-zz"
SCRAPE_SECONDS = 0.5
WINDOW_SECONDS = 10
BOUNDS = (0.1, 0.25, 0.5, 1.0, 2.5)
# Requests a second of each rank that end up within each bound, and above the last.
ARRIVALS = (20.0, 10.0, 6.0, 3.0, 0.8, 0.2)


class Engines:
    """Two ready pods, one of an old release with one rank, one with two; and a pod long gone.

    Counters grow steadily with real time, so that any two scrapes give the same rates.
    """

    def __init__(self) -> None:
        self._began = time.monotonic() - 5.0

    def respond(self, asked: Asked) -> Answer:
        pod = asked.path.strip("/").partition("/")[0]
        elapsed = time.monotonic() - self._began
        ranks = ("0", "1") if pod == "owl-b" else ("0",)
        return Answer("".join(self._page(pod, rank, elapsed) for rank in ranks))

    def _page(self, pod: str, rank: str, elapsed: float) -> str:
        labels = f'engine="{rank}",model_name="owl-8b"'
        usage = {"owl-a": 0.4, "owl-b": 0.6 + 0.1 * int(rank), GHOST: 0.99}[pod]
        lines = [f"vllm:gpu_cache_usage_perc{{{labels}}} {usage}"]
        if pod == "owl-b":
            # The old name is the wrong one to read: it says more than is there.
            lines = [f"vllm:gpu_cache_usage_perc{{{labels}}} 0.95"]
            lines.append(f"vllm:kv_cache_usage_perc{{{labels}}} {usage}")
        for name, value in (("running", 3), ("waiting", 1)):
            lines.append(f"vllm:num_requests_{name}{{{labels}}} {value}")
        for name, rate in (
            ("num_preemptions_total", 2.0 if rank == "1" else 1.0),
            ("prefix_cache_queries_total", 1000.0),
            ("prefix_cache_hits_total", 300.0),
            ("request_queue_time_seconds_sum", 6.0),
            ("request_queue_time_seconds_count", 40.0),
            ("request_prefill_time_seconds_sum", 0.5),
            ("request_prefill_kv_computed_tokens_sum", 700.0),
            ("request_prompt_tokens_sum", 20000.0),
            ("request_prompt_tokens_count", 40.0),
        ):
            lines.append(f"vllm:{name}{{{labels}}} {rate * elapsed}")
        info = f'block_size="16",num_gpu_blocks="1000",{labels}'
        lines.append(f"vllm:cache_config_info{{{info}}} 1")
        return "\n".join([*lines, *self._buckets(labels, elapsed)]) + "\n"

    def _buckets(self, labels: str, elapsed: float) -> Iterator[str]:
        total = 0.0
        for bound, rate in zip((*BOUNDS, math.inf), ARRIVALS, strict=True):
            total += rate
            le = "+Inf" if math.isinf(bound) else str(bound)
            count = math.floor(total * elapsed)
            yield f'vllm:time_to_first_token_seconds_bucket{{{labels},le="{le}"}} {count}'


class Cluster:
    """The API server's word: the two pods are ready, the ghost does not exist."""

    def __init__(self, server: PageServer) -> None:
        self._server = server

    async def target(self, policy: EvictionPolicy) -> Target:
        pods = tuple(
            EnginePod(
                PodKey(NAMESPACE, pod),
                Engine.VLLM,
                f"{self._server.url}/{pod}/metrics",
                f"{self._server.url}/{pod}/plugin",
            )
            for pod in READY
        )
        return Target(TargetState(found=True, desired_replicas=2, ready_replicas=2), pods)


def policy(source: str, quantile: str = "0.95", window: int = WINDOW_SECONDS) -> EvictionPolicy:
    ttft = {"quantile": quantile, "threshold": "600ms", "window": f"{window}s", "minRequests": 50}
    metadata = {
        "namespace": NAMESPACE,
        "name": source,
        "uid": source,
        "generation": 1,
        "resourceVersion": "1",
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    spec = {
        "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "owl"},
        "slo": {"ttft": ttft},
        "metrics": {"source": source},
    }
    return parse_policy({"metadata": metadata, "spec": spec})


@contextmanager
def prometheus(engines: PageServer, directory: Path) -> Iterator[str]:
    """A Prometheus below a path prefix, scraping the pods; yields its URL."""
    binary = shutil.which("prometheus")
    assert binary, "prometheus is not on the PATH: apt-get install --yes prometheus"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (directory / "prometheus.yml").write_text(yaml.safe_dump(_configuration(engines)))
    command = [
        binary,
        f"--config.file={directory}/prometheus.yml",
        f"--storage.tsdb.path={directory}/data",
        f"--web.listen-address=127.0.0.1:{port}",
        "--web.route-prefix=/metrics-store",
        f"--web.external-url=http://127.0.0.1:{port}/metrics-store",
    ]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            yield f"http://127.0.0.1:{port}/metrics-store/"
        finally:
            process.kill()
            process.wait()


def _configuration(engines: PageServer) -> dict[str, object]:
    host = engines.url.removeprefix("http://")
    jobs = [
        {
            "job_name": job,
            "scrape_interval": f"{int(SCRAPE_SECONDS * 1000)}ms",
            "scrape_timeout": f"{int(SCRAPE_SECONDS * 1000)}ms",
            "metrics_path": f"/{pod}/metrics",
            "static_configs": [{"targets": [host], "labels": {"namespace": NAMESPACE, "pod": pod}}],
        }
        # Two jobs scrape one of the pods, as happens where discovery overlaps.
        for job, pod in (*zip(READY, READY, strict=True), ("again", READY[0]), ("gone", GHOST))
    ]
    return {"scrape_configs": jobs}


def wait_for_samples(url: str) -> None:
    """Until every pod was scraped for more than a window."""
    expression = (
        f"min(count_over_time(vllm:num_requests_running[{WINDOW_SECONDS + 2}s]))"
        f" and count(count by (pod) (vllm:num_requests_running)) == {len(READY) + 1}"
    )
    wanted = WINDOW_SECONDS / SCRAPE_SECONDS
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        try:
            query = urllib.parse.urlencode({"query": expression})
            with urllib.request.urlopen(f"{url}api/v1/query?{query}", timeout=5) as answer:
                result = json.load(answer)["data"]["result"]
            if result and float(result[0]["value"][1]) >= wanted:
                return
        except OSError:
            pass  # Not listening yet.
        time.sleep(0.5)
    raise AssertionError("Prometheus did not gather a window of samples within 90 s")


async def look(server: PageServer, url: str) -> tuple[Observation, Observation, Observation]:
    """The direct source's and Prometheus's observation, and one of a quantile past the buckets."""
    sources = {
        "direct": SourceDefinition("direct", SourceKind.DIRECT),
        "store": SourceDefinition("store", SourceKind.PROMETHEUS, url=url),
    }
    observer = Observer(Cluster(server), sources, time.time)
    try:
        await observer.observe(policy("direct"))
        await asyncio.to_thread(wait_for_samples, url)
        direct, store = await asyncio.gather(
            observer.observe(policy("direct")), observer.observe(policy("store"))
        )
        tail = await observer.observe(policy("store", quantile="0.999"))
        return direct, store, tail
    finally:
        await observer.close()


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> tuple[Observation, Observation, Observation]:
    engines = Engines()
    with (
        serve(engines.respond) as server,
        prometheus(server, tmp_path_factory.mktemp("prometheus")) as url,
    ):
        return asyncio.run(look(server, url))


Seen = tuple[Observation, Observation, Observation]


@pytest.mark.parametrize(
    ("name", "true", "tolerance"),
    [
        ("kv_usage", 0.7, 0.0),
        ("running", 9.0, 0.0),
        ("waiting", 3.0, 0.0),
        ("preemptions", 2.0, 0.1),
        ("hit_ratio", 0.3, 0.01),
        ("queue_time", 0.15, 0.01),
        ("prefill_rate", 1400.0, 0.01),
        ("uncached_tokens", 2100.0, 0.1),
        ("prompt_tokens_per_request", 500.0, 0.01),
    ],
)
def test_both_sources_give_the_true_reading(
    seen: Seen, name: str, true: float, tolerance: float
) -> None:
    for observation in seen[:2]:
        reading = getattr(observation, name)
        assert isinstance(reading, Value), reading
        assert reading.value == pytest.approx(true, rel=tolerance, abs=1e-9)


def test_both_sources_give_the_same_quantile(seen: Seen) -> None:
    direct, store = (observation.ttft for observation in seen[:2])
    assert isinstance(direct, Interval)
    assert isinstance(store, Interval)
    assert (direct.lower, direct.upper) == (store.lower, store.upper) == (0.5, 1.0)
    assert direct.estimate == pytest.approx(store.estimate, rel=0.05)
    for interval in (direct, store):
        assert interval.above_lower <= 3.0 / 40 <= interval.above_upper


def test_past_the_last_bucket_prometheus_too_says_at_least(seen: Seen) -> None:
    tail = seen[2].ttft
    assert isinstance(tail, Interval)
    assert (tail.lower, tail.upper) == (2.5, math.inf)


def test_names_in_use_and_capacity_are_the_same(seen: Seen) -> None:
    direct, store, _ = seen
    assert direct.metric_names == store.metric_names
    names = "vllm:gpu_cache_usage_perc, vllm:kv_cache_usage_perc"
    assert store.metric_names["kv_usage"] == names
    assert [(engine.pod, engine.engine) for engine in store.engines] == [
        ("owl-a", "0"),
        ("owl-b", "0"),
        ("owl-b", "1"),
    ]
    for here, there in zip(direct.engines, store.engines, strict=True):
        assert here == there
        assert here.capacity_tokens == 16000


def test_what_no_engine_exposes_is_unknown_by_both(seen: Seen) -> None:
    for observation in seen[:2]:
        for engine in observation.engines:
            assert engine.in_force is None
        assert isinstance(observation.evicted_protected, Unknown)
        assert observation.evicted_protected.reason is Reason.NO_SERIES
