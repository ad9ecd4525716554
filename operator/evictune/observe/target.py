"""From spec.targetRef to the pods that run its engines, as the API server knows them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Protocol

from evictune.api.observation import TargetState
from evictune.api.policy import EvictionPolicy
from evictune.api.reasons import Reason
from evictune.kube import ApiError, KubeApi
from evictune.observe.containers import ContainerError, EngineContainer, find_engine
from evictune.observe.dialects import PLUGIN_PORT, Engine
from evictune.observe.snapshot import PodKey
from evictune.observe.workload import selector_text, workload_state

METRICS_PORT_ANNOTATION = "evictune.io/metrics-port"
READ_SECONDS = 10.0
_THREADS = 4
_COLLECTIONS: Mapping[str, str] = {"Deployment": "deployments", "StatefulSet": "statefulsets"}

Object = Mapping[str, Any]


@dataclass(frozen=True)
class EnginePod:
    """A ready pod of the target and the addresses of its two pages."""

    key: PodKey
    engine: Engine
    engine_url: str
    plugin_url: str
    uid: str = ""
    restarts: int = 0


@dataclass(frozen=True)
class AwayPod:
    """A pod of the target that is not ready; how often its engine's container was restarted."""

    name: str
    uid: str
    restarts: int


@dataclass(frozen=True)
class Target:
    """The workload's state, its ready pods in the order of their names, and those not ready."""

    state: TargetState
    pods: tuple[EnginePod, ...] = ()
    away: tuple[AwayPod, ...] = ()


class ClusterReader(Protocol):
    """Where the target's pods are looked up."""

    async def target(self, policy: EvictionPolicy) -> Target:
        """The target now. Never raises for faults of the API server: they are state.problem."""
        ...


class ApiClusterReader:
    """Looks the target up at the API server: three reads, in threads of its own."""

    def __init__(self, api: KubeApi, read_seconds: float = READ_SECONDS) -> None:
        self._api = api
        self._read_seconds = read_seconds
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="observe-api")

    async def target(self, policy: EvictionPolicy) -> Target:
        """The target now, or its problem."""
        loop = asyncio.get_running_loop()
        reading = loop.run_in_executor(self._threads, self._read, policy)
        try:
            return await asyncio.wait_for(reading, self._read_seconds)
        except TimeoutError:
            return _problem(
                Reason.CLUSTER_UNAVAILABLE,
                f"the API server gave no answer within {self._read_seconds:g} s",
            )
        except ApiError as error:
            return _problem(Reason.CLUSTER_UNAVAILABLE, f"reading the target: {error}")

    def _read(self, policy: EvictionPolicy) -> Target:
        reference = policy.spec.target_ref
        collection = f"/apis/apps/v1/namespaces/{policy.namespace}"
        workload = self._api.get_or_none(
            f"{collection}/{_COLLECTIONS[reference.kind]}/{reference.name}"
        )
        if workload is None:
            return _problem(
                Reason.TARGET_MISSING,
                f"spec.targetRef: namespace {policy.namespace} has no {reference.kind} "
                f"{reference.name!r}",
            )
        selection = {"labelSelector": selector_text(workload)}
        owners = {workload["metadata"]["uid"]}
        if reference.kind == "Deployment":
            sets = self._api.items(f"{collection}/replicasets", selection)
            owners = {owned["metadata"]["uid"] for owned in _owned_by(sets, owners)}
        pods = self._api.items(f"/api/v1/namespaces/{policy.namespace}/pods", selection)
        owned = list(_owned_by(pods, owners))
        ready = [pod for pod in owned if is_ready(pod)]
        found = describe(reference.kind, workload, ready, policy.spec.container_name)
        name = policy.spec.container_name
        return replace(found, away=tuple(_away(pod, name) for pod in owned if not is_ready(pod)))


def describe(
    kind: str, workload: Object, ready: Iterable[Object], container_name: str | None
) -> Target:
    """The target from its objects."""
    ready = sorted(ready, key=lambda pod: str(pod["metadata"]["name"]))
    state = workload_state(kind, workload, len(ready))
    if not ready:
        rolling = f": {state.message}" if state.message else ""
        message = f"no pod of {kind} {workload['metadata']['name']} is ready{rolling}"
        return Target(_with_problem(state, Reason.NO_READY_ENGINES, message))
    try:
        return Target(state, tuple(engine_pod(pod, container_name) for pod in ready))
    except ContainerError as error:
        return Target(_with_problem(state, error.reason, str(error)))


def engine_pod(pod: Object, container_name: str | None) -> EnginePod:
    """Where a ready pod's pages are. Raises ContainerError."""
    metadata = pod["metadata"]
    container: EngineContainer = find_engine(pod["spec"]["containers"], container_name)
    address = str(pod["status"]["podIP"])
    host = f"[{address}]" if ":" in address else address
    return EnginePod(
        key=PodKey(metadata["namespace"], metadata["name"]),
        engine=container.engine,
        engine_url=f"http://{host}:{container.port}/metrics",
        plugin_url=f"http://{host}:{_plugin_port(metadata)}/metrics",
        uid=metadata["uid"],
        restarts=_restarts(pod, container.name),
    )


def _away(pod: Object, container_name: str | None) -> AwayPod:
    metadata = pod["metadata"]
    try:
        container = find_engine(pod["spec"]["containers"], container_name).name
    except ContainerError:  # told where the ready pods are described
        container = ""
    return AwayPod(metadata["name"], metadata["uid"], _restarts(pod, container))


def _restarts(pod: Object, container: str) -> int:
    """How often the container was restarted."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    counts = (each.get("restartCount") for each in statuses if each.get("name") == container)
    return int(next(counts, 0) or 0)


def _plugin_port(metadata: Object) -> int:
    """The plugin's port: its own, unless the pod's annotation names another."""
    text = (metadata.get("annotations") or {}).get(METRICS_PORT_ANNOTATION)
    if text is None:
        return PLUGIN_PORT
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise ContainerError(
            Reason.INVALID_ANNOTATION,
            f"pod {metadata['name']}: the annotation {METRICS_PORT_ANNOTATION} is {text!r}: "
            "write a port number from 1 to 65535",
        )
    return int(text)


def is_ready(pod: Object) -> bool:
    """Ready, with an address, and not on its way out."""
    status = pod.get("status") or {}
    conditions = {c["type"]: c["status"] for c in status.get("conditions") or ()}
    leaving = pod["metadata"].get("deletionTimestamp") is not None
    return conditions.get("Ready") == "True" and bool(status.get("podIP")) and not leaving


def _owned_by(objects: Iterable[Object], owners: set[str]) -> Iterator[Object]:
    """Those whose owner is one of these UIDs: a selector alone may catch other workloads' pods."""
    for item in objects:
        references = item["metadata"].get("ownerReferences") or ()
        if any(reference["uid"] in owners for reference in references):
            yield item


def _problem(reason: Reason, message: str) -> Target:
    return Target(TargetState(found=False, problem=reason, message=message))


def _with_problem(state: TargetState, reason: Reason, message: str) -> TargetState:
    return replace(state, problem=reason, message=message)
