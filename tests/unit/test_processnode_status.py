"""A pod's phase and conditions from the states of its containers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from localcluster.processnode.container import ContainerReport, Running, State, Terminated, Waiting
from localcluster.processnode.status import failed_status, pod_phase, pod_status

THEN = datetime(2026, 1, 1, tzinfo=UTC)
NOW = datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
RUNNING = Running(THEN)
CREATING = Waiting("ContainerCreating")
DONE = Terminated(0, "Completed", "", THEN, NOW)
FAILED = Terminated(1, "Error", "", THEN, NOW)


def report(state: State, *, ready: bool = False, last: Terminated | None = None) -> ContainerReport:
    return ContainerReport("c", "image", state, last, ready, True, 0, "process://1-1")


@pytest.mark.parametrize(
    ("states", "policy", "phase"),
    [
        ([CREATING], "Always", "Pending"),
        ([RUNNING, CREATING], "Always", "Pending"),
        ([RUNNING, RUNNING], "Always", "Running"),
        ([RUNNING, FAILED], "Never", "Running"),
        ([DONE], "Always", "Running"),
        ([DONE, DONE], "OnFailure", "Succeeded"),
        ([DONE, FAILED], "OnFailure", "Running"),
        ([DONE, FAILED], "Never", "Failed"),
        ([DONE], "Never", "Succeeded"),
    ],
)
def test_phase(states: list[State], policy: str, phase: str) -> None:
    assert pod_phase([], [report(state) for state in states], policy) == phase


def test_a_container_in_back_off_leaves_the_pod_running() -> None:
    waiting = report(Waiting("CrashLoopBackOff"), last=FAILED)
    assert pod_phase([], [waiting], "Always") == "Running"


@pytest.mark.parametrize(
    ("init", "policy", "phase"),
    [
        (RUNNING, "Always", "Pending"),
        (FAILED, "Always", "Pending"),
        (FAILED, "Never", "Failed"),
        (DONE, "Never", "Running"),
    ],
)
def test_phase_with_init_containers(init: State, policy: str, phase: str) -> None:
    main = report(RUNNING if init is DONE else CREATING)
    assert pod_phase([report(init)], [main], policy) == phase


def status(previous: dict[str, Any], main: list[ContainerReport], policy: str = "Always") -> Any:
    return pod_status(
        previous,
        [],
        main,
        restart_policy=policy,
        pod_ip="127.40.0.1",
        host_ip="127.0.0.1",
        started_at=THEN,
        now=NOW,
    )


def conditions(status: Any) -> dict[str, Any]:
    return {c["type"]: c for c in status["conditions"]}


def test_a_ready_pod() -> None:
    ready = status({}, [report(RUNNING, ready=True)])
    assert {kind: c["status"] for kind, c in conditions(ready).items()} == {
        "PodReadyToStartContainers": "True",
        "Initialized": "True",
        "Ready": "True",
        "ContainersReady": "True",
        "PodScheduled": "True",
    }
    assert ready["podIP"] == "127.40.0.1"
    assert ready["startTime"] == "2026-01-01T00:00:00Z"
    (container,) = ready["containerStatuses"]
    assert container["state"] == {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    assert container["lastState"] == {}


def test_an_unready_container_is_named() -> None:
    ready = conditions(status({}, [report(RUNNING)]))["Ready"]
    assert (ready["status"], ready["reason"]) == ("False", "ContainersNotReady")
    assert ready["message"] == "containers with unready status: [c]"


def test_a_completed_pod_is_not_ready_for_that_reason() -> None:
    done = conditions(status({}, [report(DONE)], "Never"))
    assert done["Ready"]["reason"] == "PodCompleted"


def test_a_transition_time_changes_only_with_the_condition() -> None:
    old = "2025-12-31T00:00:00Z"
    before = [
        {"type": "Ready", "status": "True", "lastTransitionTime": old},
        {"type": "ContainersReady", "status": "False", "lastTransitionTime": old},
    ]
    after = conditions(status({"conditions": before}, [report(RUNNING, ready=True)]))
    assert after["Ready"]["lastTransitionTime"] == old
    assert after["ContainersReady"]["lastTransitionTime"] == "2026-01-01T00:01:00Z"


def test_a_refused_pod_is_failed_and_not_ready() -> None:
    refused = failed_status({}, "UnsupportedPodField", "spec.x is not supported", NOW)
    assert (refused["phase"], refused["reason"]) == ("Failed", "UnsupportedPodField")
    assert conditions(refused)["Ready"]["status"] == "False"
