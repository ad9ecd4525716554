"""A real vLLM in a pod: this checkout's environment and model, mounted from the machine."""

from __future__ import annotations

import json
import sys
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from demo.constants import ENGINE, SERVED_MODEL
from demo.manifests import engine_arguments
from localcluster.paths import cache_directory
from tests.support.local_http import answers, opened

PORT = ENGINE.port
PLUGIN_PORT = ENGINE.metrics_port
# From 10 ms to a minute in steps of 10 %, so that a quantile is known as well as tolerance wants.
TTFT_BOUNDS = [round(0.010 * 1.1**step, 4) for step in range(92)]


def deployment(namespace: str, name: str, image: str, model: Path) -> dict[str, Any]:
    """The Deployment of an engine, not wired yet, as its owner would write it.

    The image needs what vLLM's wheels load from the system and a compiler; vLLM and Python come
    from this machine.
    """
    volumes, mounts = _volumes(sorted(_environment() | {model}))
    environment = {"HF_HUB_OFFLINE": "1", "HOME": "/tmp", "VLLM_CACHE_ROOT": str(_cache())}
    container = {
        "name": "vllm",
        "image": image,
        "imagePullPolicy": "Never",
        "command": [sys.executable, "-m", "vllm.entrypoints.openai.api_server"],
        "args": engine_arguments(model, "0.0.0.0", PORT, TTFT_BOUNDS),
        "env": [{"name": name, "value": value} for name, value in environment.items()],
        "ports": [{"name": "http", "containerPort": PORT}],
        "readinessProbe": {
            "httpGet": {"path": "/health", "port": PORT},
            "periodSeconds": 2,
            "timeoutSeconds": 5,
            "failureThreshold": 3,
        },
        "volumeMounts": mounts,
    }
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": 1,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [container], "volumes": volumes},
            },
        },
    }


def _volumes(paths: list[Path]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Volumes and their mounts: the paths, the cache, and shared memory."""
    volumes: list[dict[str, Any]] = [
        # vLLM's processes talk through it; a container has 64 MiB, which is too little.
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}
    ]
    mounts: list[dict[str, Any]] = [{"name": "shm", "mountPath": "/dev/shm"}]
    for number, path in enumerate([*paths, _cache()]):
        name = f"host-{number}"
        volumes.append({"name": name, "hostPath": {"path": str(path), "type": "Directory"}})
        mounts.append({"name": name, "mountPath": str(path), "readOnly": path != _cache()})
    return volumes, mounts


def _cache() -> Path:
    """What vLLM works out about a model once, kept between runs: a minute on a busy machine."""
    cache = cache_directory() / "vllm"
    cache.mkdir(exist_ok=True)
    return cache


def _environment() -> set[Path]:
    """The virtual environment and the interpreter it was made from."""
    return {Path(sys.prefix), Path(sys.base_prefix)} - {Path("/usr")}


@dataclass(frozen=True)
class InForce:
    """What the plugin of one engine says is in force. xi_tokens None: stock LRU."""

    policy: str
    xi_tokens: int | None
    revision: int


class Engine:
    """An engine's own ports, at its pod's address."""

    def __init__(self, address: str) -> None:
        self.url = f"http://{address}:{PORT}"
        self._plugin = f"http://{address}:{PLUGIN_PORT}/metrics"

    def healthy(self) -> bool:
        """Whether it serves."""
        return answers(f"{self.url}/health")

    def complete(self, prompt: list[int], tokens: int = 4) -> str:
        """The text of a greedy completion of a prompt of token ids."""
        body = {"model": SERVED_MODEL, "prompt": prompt, "max_tokens": tokens, "temperature": 0}
        request = urllib.request.Request(
            f"{self.url}/v1/completions",
            json.dumps({**body, "ignore_eos": True}).encode(),
            {"Content-Type": "application/json"},
        )
        with opened(request) as answer:
            text: str = json.load(answer)["choices"][0]["text"]
        return text

    def cache_config(self) -> tuple[str, int] | None:
        """Memory fraction and number of KV blocks, as vLLM shows them; None: it does not serve."""
        shown = [labels for labels, _ in _samples(f"{self.url}/metrics", "vllm:cache_config_info")]
        if not shown:
            return None
        (labels,) = shown
        return labels["gpu_memory_utilization"], int(labels["num_gpu_blocks"])

    def samples(self, name: str) -> list[tuple[dict[str, str], float]]:
        """Labels and value of the plugin's samples of one name; none if its port is closed."""
        return _samples(self._plugin, name)

    def in_force(self) -> InForce | None:
        """What the plugin's series say; None while it does not answer."""
        shown = [labels for labels, value in self.samples("evictune_policy_info") if value == 1]
        if not shown:
            return None
        assert len(shown) == 1, f"one engine, but {shown}"
        xi = shown[0]["xi_tokens"]
        return InForce(shown[0]["policy"], int(xi) if xi else None, int(shown[0]["revision"]))

    def refusal(self) -> str:
        """Why the document now on disk is refused, in the plugin's words; "" if it is not."""
        shown = self.samples("evictune_refused_document_info")
        return "; ".join(f"{labels['reason']}: {labels['message']}" for labels, _ in shown)


def _samples(page: str, name: str) -> list[tuple[dict[str, str], float]]:
    """Labels and value of the samples of one name on a metrics page; none if nobody answers."""
    try:
        with opened(page) as answer:
            text = answer.read().decode()
    except OSError:
        return []
    families = text_string_to_metric_families(text)
    samples = [sample for family in families for sample in family.samples]
    return [(sample.labels, sample.value) for sample in samples if sample.name == name]
