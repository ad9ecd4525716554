"""SI-6: the metrics port is not the API port, and the engine is not container 0."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterator, Mapping
from typing import Any, cast

import pytest
from evictune.api.reasons import Reason
from evictune.kube import KubeApi
from evictune.observe.target import ApiClusterReader, Target

from tests.support.field_case import case_policy

ROUTE = {
    "name": "route",
    "image": "example/route:1",
    "ports": [{"name": "http", "containerPort": 8000}],
}
ENGINE = {
    "name": "engine",
    "image": "vllm/vllm-openai:v0.11.0",
    "args": ["--model=acme/owl-8b", "--port=8200", "--gpu-memory-utilization=0.9"],
    "ports": [{"name": "metrics", "containerPort": 8200}],
}


class Cluster:
    """An API server with one Deployment of one ready pod; it refuses to be written to."""

    def __init__(self, containers: list[dict[str, Any]]) -> None:
        self.pod = {
            "metadata": {
                "namespace": "serve-a",
                "name": "owl-8b-a",
                "uid": "u",
                "ownerReferences": [{"uid": "rs"}],
            },
            "spec": {"containers": containers},
            "status": {"podIP": "10.0.0.7", "conditions": [{"type": "Ready", "status": "True"}]},
        }

    def get_or_none(self, path: str) -> dict[str, Any]:
        del path
        status = {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1}
        return {
            "metadata": {"name": "owl-8b", "uid": "d", "generation": 1},
            "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "owl"}}},
            "status": status | {"availableReplicas": 1},
        }

    def items(self, path: str, selection: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        del selection
        if path.endswith("/replicasets"):
            yield {"metadata": {"uid": "rs", "ownerReferences": [{"uid": "d"}]}}
        else:
            yield self.pod


def target(*containers: dict[str, Any], **spec: Any) -> Target:
    cluster = Cluster([copy.deepcopy(each) for each in containers])
    reader = ApiClusterReader(cast("KubeApi", cluster))
    found = asyncio.run(reader.target(case_policy(**spec)))
    assert cluster.pod["spec"] == {"containers": list(containers)}
    return found


@pytest.mark.parametrize("containers", [(ROUTE, ENGINE), (ENGINE, ROUTE)])
def test_the_engine_is_known_by_what_it_runs(containers: tuple[dict[str, Any], ...]) -> None:
    (pod,) = target(*containers).pods
    assert pod.engine_url == "http://10.0.0.7:8200/metrics"


def test_two_that_could_be_it_are_refused_with_the_field_to_set() -> None:
    second = ENGINE | {"name": "engine-b", "args": ["--model=acme/owl-8b", "--port=8300"]}
    state = target(ENGINE, second).state
    assert state.problem is Reason.AMBIGUOUS_CONTAINER
    assert "set spec.containerName" in state.message
    (pod,) = target(ENGINE, second, containerName="engine-b").pods
    assert pod.engine_url == "http://10.0.0.7:8300/metrics"
