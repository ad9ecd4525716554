"""From the target's name to its pods: ownership, readiness, rollouts, refusals."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from typing import Any, cast

import pytest
from evictune.api.parse import parse_policy
from evictune.api.policy import EvictionPolicy
from evictune.api.reasons import Reason
from evictune.kube import ApiError, KubeApi
from evictune.observe.target import ApiClusterReader, AwayPod, Target
from evictune.observe.workload import selector_text, workload_state

Object = dict[str, Any]


def policy(kind: str = "Deployment") -> EvictionPolicy:
    return parse_policy(
        {
            "metadata": {
                "namespace": "serve-a",
                "name": "owl",
                "uid": "p",
                "generation": 1,
                "resourceVersion": "1",
                "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": {
                "targetRef": {"apiVersion": "apps/v1", "kind": kind, "name": "owl"},
                "slo": {
                    "ttft": {
                        "quantile": "0.99",
                        "threshold": "800ms",
                        "window": "1m",
                        "minRequests": 10,
                    }
                },
            },
        }
    )


def workload(uid: str = "d", **status: Any) -> Object:
    settled = {
        "observedGeneration": 2,
        "replicas": 2,
        "updatedReplicas": 2,
        "availableReplicas": 2,
        "readyReplicas": 2,
    }
    return {
        "metadata": {"name": "owl", "uid": uid, "generation": 2},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "owl"}}},
        "status": settled | status,
    }


def pod(name: str, owner: str = "rs", *, ready: bool = True, **metadata: Any) -> Object:
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    return {
        "metadata": {
            "namespace": "serve-a",
            "name": name,
            "uid": f"uid-of-{name}",
            "ownerReferences": [{"uid": owner}],
            **metadata,
        },
        "spec": {"containers": [{"name": "engine", "image": "vllm/vllm-openai:v0.32.0"}]},
        "status": {"podIP": "10.0.0.7", "conditions": conditions},
    }


class FakeApi:
    """The API server's answers by the last part of the path."""

    def __init__(self, **answers: Any) -> None:
        self._answers = answers
        self.selectors: list[str] = []

    def get_or_none(self, path: str) -> Object | None:
        return cast("Object | None", self._answer("workload"))

    def items(self, path: str, selection: Mapping[str, str]) -> Iterator[Object]:
        self.selectors.append(selection["labelSelector"])
        yield from self._answer(path.rpartition("/")[2])

    def _answer(self, name: str) -> Any:
        answer = self._answers.get(name)
        if isinstance(answer, Exception):
            raise answer
        return answer() if callable(answer) else answer


def read(api: FakeApi, kind: str = "Deployment", seconds: float = 5.0) -> Target:
    reader = ApiClusterReader(cast("KubeApi", api), read_seconds=seconds)
    return asyncio.run(reader.target(policy(kind)))


REPLICA_SET = {"metadata": {"uid": "rs", "ownerReferences": [{"uid": "d"}]}}


def test_ready_pods_of_the_deployment_and_no_other_s() -> None:
    stranger = {"metadata": {"uid": "rs-b", "ownerReferences": [{"uid": "other"}]}}
    pods = [
        pod("owl-b"),
        pod("owl-a"),
        pod("owl-c", ready=False),
        pod("owl-d", deletionTimestamp="2026-01-01T00:00:00Z"),
        pod("canary", owner="rs-b"),
    ]
    api = FakeApi(workload=workload(), replicasets=[REPLICA_SET, stranger], pods=pods)
    target = read(api)
    assert [found.key.pod for found in target.pods] == ["owl-a", "owl-b"]
    assert target.pods[0].uid == "uid-of-owl-a"
    assert target.pods[0].engine_url == "http://10.0.0.7:8000/metrics"
    assert target.pods[0].plugin_url == "http://10.0.0.7:9410/metrics"
    assert target.state.ready_replicas == 2
    assert not target.state.rollout_in_progress
    assert target.state.problem is None
    assert api.selectors == ["app=owl", "app=owl"]


def test_pods_that_are_away_are_known_and_restarts_are_the_engine_s() -> None:
    """A sidecar that restarts says nothing of the engine beside it."""

    def restarted(name: str, ready: bool, engine: int, sidecar: int) -> Object:
        found = pod(name, ready=ready)
        found["status"]["containerStatuses"] = [
            {"name": "sidecar", "restartCount": sidecar},
            {"name": "engine", "restartCount": engine},
        ]
        return found

    pods = [restarted("owl-a", True, 1, 7), restarted("owl-b", False, 3, 9), pod("owl-c")]
    target = read(FakeApi(workload=workload(), replicasets=[REPLICA_SET], pods=pods))
    assert [(each.key.pod, each.restarts) for each in target.pods] == [("owl-a", 1), ("owl-c", 0)]
    assert target.away == (AwayPod("owl-b", "uid-of-owl-b", 3),)


def test_an_engine_that_is_away_is_no_pod_that_is_replaced() -> None:
    away = workload_state("Deployment", workload(availableReplicas=1), 1)
    assert (away.rollout_in_progress, away.replacing) == (True, False)
    rolling = workload_state("Deployment", workload(updatedReplicas=1), 2)
    assert (rolling.rollout_in_progress, rolling.replacing) == (True, True)
    away = workload_state("StatefulSet", workload(readyReplicas=1), 1)
    assert (away.rollout_in_progress, away.replacing) == (True, False)
    scaled = workload_state("StatefulSet", workload(replicas=3), 2)
    assert (scaled.rollout_in_progress, scaled.replacing) == (True, True)


def test_a_replica_set_that_was_given_away_takes_its_pods_along() -> None:
    """Whose pods they are is asked at every look: another Deployment may have adopted them."""
    owned = {"metadata": {"uid": "rs", "ownerReferences": [{"uid": "d"}]}}
    api = FakeApi(workload=workload(), replicasets=[owned], pods=[pod("owl-a")])
    reader = ApiClusterReader(cast("KubeApi", api))
    assert len(asyncio.run(reader.target(policy())).pods) == 1
    owned["metadata"]["ownerReferences"] = [{"uid": "other"}]
    assert not asyncio.run(reader.target(policy())).pods


def test_a_stateful_set_owns_its_pods_itself() -> None:
    target = read(FakeApi(workload=workload("s"), pods=[pod("owl-0", owner="s")]), "StatefulSet")
    assert [found.key.pod for found in target.pods] == ["owl-0"]


def test_the_annotation_moves_the_plugin_s_port_and_ipv6_is_bracketed() -> None:
    moved = pod("owl-a", annotations={"evictune.io/metrics-port": "9500"})
    moved["status"]["podIP"] = "fd00::7"
    target = read(FakeApi(workload=workload(), replicasets=[REPLICA_SET], pods=[moved]))
    assert target.pods[0].plugin_url == "http://[fd00::7]:9500/metrics"


@pytest.mark.parametrize("port", ["", "9,410", "0", "65536", "http"])
def test_an_annotation_that_is_no_port_is_named_not_passed_over(port: str) -> None:
    wrong = pod("owl-a", annotations={"evictune.io/metrics-port": port})
    state = read(FakeApi(workload=workload(), replicasets=[REPLICA_SET], pods=[wrong])).state
    assert state.problem is Reason.INVALID_ANNOTATION
    assert f"the annotation evictune.io/metrics-port is {port!r}" in state.message


@pytest.mark.parametrize(
    ("api", "reason", "words"),
    [
        (FakeApi(workload=None), Reason.TARGET_MISSING, "spec.targetRef: namespace serve-a has no"),
        (
            FakeApi(workload=ApiError(403, "Forbidden", "cannot get deployments")),
            Reason.CLUSTER_UNAVAILABLE,
            "Forbidden (403): cannot get deployments",
        ),
        (
            FakeApi(workload=workload(), replicasets=[REPLICA_SET], pods=[]),
            Reason.NO_READY_ENGINES,
            "no pod of Deployment owl is ready",
        ),
    ],
)
def test_what_stands_in_the_way_is_named(api: FakeApi, reason: Reason, words: str) -> None:
    state = read(api).state
    assert state.problem is reason
    assert words in state.message
    assert state.found is (reason is Reason.NO_READY_ENGINES)


def test_an_engine_that_cannot_be_told_is_the_target_s_problem() -> None:
    odd = pod("owl-a")
    odd["spec"]["containers"] = [{"name": "web", "image": "example/web:1"}]
    target = read(FakeApi(workload=workload(), replicasets=[REPLICA_SET], pods=[odd]))
    assert target.state.problem is Reason.NO_ENGINE_CONTAINER
    assert target.pods == ()


def test_an_api_server_that_hangs_is_given_up() -> None:
    began = time.monotonic()
    state = read(FakeApi(workload=lambda: time.sleep(0.5)), seconds=0.05).state
    assert state.problem is Reason.CLUSTER_UNAVAILABLE
    assert "0.05 s" in state.message
    assert time.monotonic() - began < 2


@pytest.mark.parametrize(
    ("kind", "status", "words"),
    [
        ("Deployment", {"observedGeneration": 1}, "not yet acted upon"),
        ("Deployment", {"updatedReplicas": 1}, "1 of 2 replicas are of the latest template"),
        ("Deployment", {"replicas": 3}, "3 replicas exist, 2 are wanted"),
        ("Deployment", {"availableReplicas": 1}, "1 of 2 replicas are available"),
        ("StatefulSet", {"observedGeneration": 1}, "not yet acted upon"),
        ("StatefulSet", {"readyReplicas": 1}, "1 of 2 replicas are ready"),
        ("StatefulSet", {"replicas": 1}, "1 replicas exist, 2 are wanted"),
        (
            "StatefulSet",
            {"updateRevision": "b", "currentRevision": "a", "updatedReplicas": 1},
            "1 of 2 replicas are of the latest template",
        ),
    ],
)
def test_a_rollout_or_scaling_under_way(kind: str, status: Object, words: str) -> None:
    state = workload_state(kind, workload(**status), ready_pods=2)
    assert state.rollout_in_progress
    assert words in state.message


def test_a_partitioned_stateful_set_has_arrived_at_its_partition() -> None:
    held = workload(updateRevision="b", currentRevision="a", updatedReplicas=1)
    held["spec"]["updateStrategy"] = {"rollingUpdate": {"partition": 1}}
    assert not workload_state("StatefulSet", held, ready_pods=2).rollout_in_progress


def test_selectors_in_the_api_s_words() -> None:
    selector = {
        "matchLabels": {"app": "owl"},
        "matchExpressions": [
            {"key": "tier", "operator": "In", "values": ["a", "b"]},
            {"key": "track", "operator": "NotIn", "values": ["canary"]},
            {"key": "gpu", "operator": "Exists"},
            {"key": "legacy", "operator": "DoesNotExist"},
        ],
    }
    text = selector_text({"spec": {"selector": selector}})
    assert text == "app=owl,tier in (a,b),track notin (canary),gpu,!legacy"
