"""A pod's status, as kubelet would report it, from the states of its containers.

Source: pkg/kubelet/kubelet_pods.go (`getPhase`) and pkg/kubelet/status/generate.go.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from localcluster.processnode.api import Json
from localcluster.processnode.container import (
    ContainerReport,
    Running,
    State,
    Terminated,
    Waiting,
)


def timestamp(moment: datetime | None) -> str | None:
    """A time as the API writes it, in UTC, to the second."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ") if moment else None


def pod_phase(
    init: Sequence[ContainerReport], main: Sequence[ContainerReport], restart_policy: str
) -> str:
    """Pending, Running, Succeeded or Failed. A pod that is being stopped has policy Never."""
    if not _initialized(init):
        failed = any(isinstance(r.state, Terminated) and r.state.exit_code for r in init)
        return "Failed" if failed and restart_policy == "Never" else "Pending"
    if any(isinstance(r.state, Waiting) and r.last is None for r in main):
        return "Pending"
    ended = [r.state for r in main if isinstance(r.state, Terminated)]
    if len(ended) < len(main) or restart_policy == "Always":
        return "Running"
    if all(state.exit_code == 0 for state in ended):
        return "Succeeded"
    return "Failed" if restart_policy == "Never" else "Running"


def pod_status(
    previous: Json,
    init: Sequence[ContainerReport],
    main: Sequence[ContainerReport],
    *,
    restart_policy: str,
    pod_ip: str,
    host_ip: str,
    started_at: datetime,
    now: datetime,
) -> Json:
    """The status to write, as a strategic merge patch; `previous` is the one before it."""
    phase = pod_phase(init, main, restart_policy)
    status: Json = {
        "phase": phase,
        "conditions": _conditions(previous, init, main, phase, bool(pod_ip), now),
        "hostIP": host_ip,
        "hostIPs": [{"ip": host_ip}],
        "startTime": timestamp(started_at),
        "containerStatuses": [_container_status(r) for r in main],
    }
    if init:
        status["initContainerStatuses"] = [_container_status(r, init=True) for r in init]
    if pod_ip:
        # A strategic merge patch adds to this list, keyed by ip, unless it is told to replace it:
        # after a crash of the node a pod comes back at another address.
        status.update(podIP=pod_ip, podIPs=[{"ip": pod_ip}, {"$patch": "replace"}])
    return status


def failed_status(previous: Json, reason: str, message: str, now: datetime) -> Json:
    """The status of a pod that this node will not run, or not run any longer."""
    conditions = [_condition(kind, False, "PodFailed") for kind in ("Ready", "ContainersReady")]
    return {
        "phase": "Failed",
        "reason": reason,
        "message": message,
        "conditions": _with_times(previous, conditions, now),
    }


def _initialized(init: Sequence[ContainerReport]) -> bool:
    return all(isinstance(r.state, Terminated) and r.state.exit_code == 0 for r in init)


def _conditions(
    previous: Json,
    init: Sequence[ContainerReport],
    main: Sequence[ContainerReport],
    phase: str,
    has_address: bool,
    now: datetime,
) -> list[Json]:
    initialized = _initialized(init)
    conditions = [
        _condition("PodReadyToStartContainers", has_address and phase in ("Pending", "Running")),
        _condition("Initialized", initialized, "ContainersNotInitialized"),
        _readiness("Ready", main, phase),
        _readiness("ContainersReady", main, phase),
        _condition("PodScheduled", True),
    ]
    return _with_times(previous, conditions, now)


def _readiness(kind: str, main: Sequence[ContainerReport], phase: str) -> Json:
    if phase == "Succeeded":
        return _condition(kind, False, "PodCompleted")
    if phase == "Failed":
        return _condition(kind, False, "PodFailed")
    unready = [r.name for r in main if not r.ready]
    message = f"containers with unready status: [{' '.join(unready)}]"
    return _condition(kind, not unready, "ContainersNotReady", message)


def _condition(kind: str, met: bool, reason: str = "", message: str = "") -> Json:
    # An empty reason or message is written too: a patch must clear what it said before.
    return {
        "type": kind,
        "status": "True" if met else "False",
        "reason": None if met else reason or None,
        "message": None if met else message or None,
    }


def _with_times(previous: Json, conditions: list[Json], now: datetime) -> list[Json]:
    """Add lastTransitionTime: kept from the previous status where a condition did not change."""
    before = {c["type"]: c for c in previous.get("conditions") or []}
    for condition in conditions:
        old = before.get(condition["type"], {})
        unchanged = old.get("status") == condition["status"] and old.get("lastTransitionTime")
        condition["lastTransitionTime"] = unchanged or timestamp(now)
    return conditions


def _container_status(report: ContainerReport, *, init: bool = False) -> Json:
    succeeded = isinstance(report.state, Terminated) and report.state.exit_code == 0
    return {
        "name": report.name,
        "image": report.image,
        "imageID": "",
        "containerID": report.container_id,
        "state": _state(report.state),
        "lastState": _state(report.last) if report.last else {},
        "ready": succeeded if init else report.ready,
        "started": report.started,
        "restartCount": report.restarts,
    }


def _state(state: State) -> Json:
    if isinstance(state, Running):
        return {"running": {"startedAt": timestamp(state.started_at)}}
    if isinstance(state, Waiting):
        return {"waiting": _present(reason=state.reason, message=state.message)}
    return {
        "terminated": _present(
            exitCode=state.exit_code,
            reason=state.reason,
            message=state.message,
            startedAt=timestamp(state.started_at),
            finishedAt=timestamp(state.finished_at),
            containerID=state.container_id,
        )
    }


def _present(**fields: Any) -> Json:
    return {name: value for name, value in fields.items() if value not in (None, "")}
