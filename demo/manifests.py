"""The manifests that the demonstration applies: as a user would write them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evictune.api.policy import GROUP, KIND, VERSION
from evictune.api.quantity import format_duration

from demo.constants import (
    DEPLOYMENT,
    ENGINE,
    NAMESPACE,
    OBJECTIVE,
    POLICY,
    SERVED_MODEL,
    TTFT_BUCKET_RANGE,
    TTFT_BUCKET_RATIO,
)

Manifest = dict[str, Any]


@dataclass(frozen=True)
class Target:
    """What was measured for the policy, in seconds."""

    threshold: float
    window: float
    settle: float


def deployment(model: Path) -> Manifest:
    """One replica of vLLM on a CPU, before `evictune wire`.

    The process node gives each pod a loopback address of its own: the servers bind that.
    """
    labels = {"app": DEPLOYMENT}
    container = {
        "name": "vllm",
        "image": "vllm-cpu",
        "command": [sys.executable, "-m", "vllm.entrypoints.openai.api_server"],
        "args": engine_arguments(model, "$(POD_IP)", ENGINE.port, ttft_buckets()),
        "env": [
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "EVICTUNE_METRICS_ADDRESS", "value": f"$(POD_IP):{ENGINE.metrics_port}"},
            {"name": "HF_HUB_OFFLINE", "value": "1"},
            {"name": "VLLM_NO_USAGE_STATS", "value": "1"},
            {"name": "HOME", "value": str(Path.home())},
            {"name": "PATH", "value": os.environ.get("PATH", os.defpath)},
        ],
        "ports": [{"name": "http", "containerPort": ENGINE.port}],
        "readinessProbe": {
            "httpGet": {"path": "/health", "port": ENGINE.port},
            "periodSeconds": 1,
            "timeoutSeconds": 5,
            "failureThreshold": 5,
        },
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": DEPLOYMENT, "namespace": NAMESPACE},
        "spec": {
            "replicas": 1,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": dict(labels)},
                "spec": {"containers": [container], "terminationGracePeriodSeconds": 10},
            },
        },
    }


def engine_arguments(model: Path, host: str, port: int, ttft_bounds: Sequence[float]) -> list[str]:
    """The command line of an OpenAI-compatible vLLM server for the demonstration's model.

    ttft_bounds: of the buckets of its TTFT histogram, in seconds.
    """
    options: dict[str, object] = {
        "model": model,
        "served-model-name": SERVED_MODEL,
        "host": host,
        "port": port,
        "dtype": "float32",
        "max-model-len": ENGINE.max_model_tokens,
        "max-num-batched-tokens": ENGINE.max_model_tokens,
        "max-num-seqs": 8,
        "block-size": ENGINE.block_tokens,
        "num-gpu-blocks-override": ENGINE.blocks,
        "kv-cache-memory-bytes": "256M",
        "custom-histogram-buckets": json.dumps({"time_to_first_token": list(ttft_bounds)}),
    }
    flags = ("enforce-eager", "enable-prefix-caching", "enable-prompt-tokens-details")
    return [*(f"--{name}={value}" for name, value in options.items()), *(f"--{f}" for f in flags)]


def ttft_buckets() -> list[float]:
    """Bounds of the engine's TTFT histogram in seconds, each TTFT_BUCKET_RATIO times the last."""
    bound, highest = TTFT_BUCKET_RANGE
    bounds = []
    while bound < highest:
        bounds.append(round(bound, 5))
        bound *= TTFT_BUCKET_RATIO
    return [*bounds, highest]


def policy(target: Target) -> Manifest:
    """The EvictionPolicy."""
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": KIND,
        "metadata": {"name": POLICY, "namespace": NAMESPACE},
        "spec": {
            "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": DEPLOYMENT},
            "mode": "Auto",
            "slo": {
                "ttft": {
                    "quantile": OBJECTIVE.quantile,
                    "threshold": format_duration(target.threshold),
                    "window": format_duration(target.window),
                    "minRequests": OBJECTIVE.min_requests,
                }
            },
            "knobs": {
                "tlru": {
                    "xiTokens": {"min": OBJECTIVE.xi_min, "max": OBJECTIVE.xi_max},
                    "qHatTokens": {"min": OBJECTIVE.q_hat, "max": OBJECTIVE.q_hat},
                }
            },
            "behavior": {
                "interval": format_duration(OBJECTIVE.interval_seconds),
                "settle": format_duration(target.settle),
                "cooldown": format_duration(OBJECTIVE.cooldown_seconds),
                "tolerance": OBJECTIVE.tolerance,
                "knobTTL": format_duration(OBJECTIVE.knob_ttl_seconds),
            },
        },
    }


def operator_configuration(metrics_port: int, liveness_port: int, prometheus: str) -> Manifest:
    """What `evictune run --config` reads. prometheus: its URL; "": engines are scraped directly."""
    timeout = {"timeout": "2s"}
    source = {"prometheus": {"url": prometheus, **timeout}} if prometheus else {"direct": timeout}
    return {
        "sources": {"default": source},
        "namespaces": [NAMESPACE],
        "metricsAddress": f"127.0.0.1:{metrics_port}",
        "livenessAddress": f"127.0.0.1:{liveness_port}",
    }


def prometheus_configuration(address: str, pod: str) -> Manifest:
    """prometheus.yml: the engine's two pages, labelled as every scraper of pods labels them."""
    targets = [f"{address}:{port}" for port in (ENGINE.port, ENGINE.metrics_port)]
    labels = {"namespace": NAMESPACE, "pod": pod}
    return {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
        "scrape_configs": [
            {"job_name": "vllm", "static_configs": [{"targets": targets, "labels": labels}]}
        ],
    }
