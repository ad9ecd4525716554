"""One pod on the node: a thread that runs its containers and keeps its status true."""

from __future__ import annotations

import logging
import threading
from datetime import datetime
from enum import Enum

from localcluster.processnode.api import STRATEGIC_MERGE_PATCH, ApiError, Json
from localcluster.processnode.container import Container, Runtime
from localcluster.processnode.logserver import ContainerLog
from localcluster.processnode.sandbox import HOST_IP, Sandbox, Services
from localcluster.processnode.spec import REASON_UNSUPPORTED, refusals
from localcluster.processnode.status import failed_status, pod_status

log = logging.getLogger(__name__)

_TICK_SECONDS = 0.1
_PUBLISH_RETRY_SECONDS = 0.5
_DEFAULT_GRACE_SECONDS = 30
# For a pod whose object is gone already, and for all pods when the node stops.
_SHORT_GRACE_SECONDS = 2.0


class Ending(Enum):
    """Why a pod is to end."""

    DELETED = "its deletion was asked for"
    GONE = "its object is gone"
    NODE_STOPS = "the node stops"


class PodWorker(threading.Thread):
    """Runs one pod, from the moment the node sees it until its processes are gone."""

    def __init__(self, pod: Json, services: Services) -> None:
        metadata = pod["metadata"]
        super().__init__(name=f"pod {metadata['namespace']}/{metadata['name']}", daemon=True)
        self._pod = pod
        self._services = services
        self._clock = services.clock
        self._api_path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
        self._sandbox = Sandbox(pod, services)
        self._started_at = _first_start(pod) or self._clock.wall()
        self._init: list[Container] = []
        self._main: list[Container] = []
        self._published: Json | None = None
        self._publish_due = float("-inf")
        self._ending: Ending | None = None
        self._wake = threading.Event()

    def update(self, pod: Json) -> None:
        """Take in the pod's object as the API has it now."""
        self._pod = pod
        if pod["metadata"].get("deletionTimestamp"):
            self.end(Ending.DELETED)

    def end(self, why: Ending) -> None:
        """Ask the pod to end; the thread ends with it."""
        if self._ending in (None, Ending.DELETED):
            self._ending = why
        self._wake.set()

    def find_log(self, namespace: str, pod: str, container: str) -> ContainerLog | None:
        """The log of a container of this pod, if it is the pod of that name and there is one."""
        metadata = self._pod["metadata"]
        path = self._sandbox.log_file(container)
        if (metadata["namespace"], metadata["name"]) != (namespace, pod) or not path.exists():
            return None
        return ContainerLog(path, lambda: self._runs(container))

    def _runs(self, container: str) -> bool:
        return any(c.running and c.name == container for c in self._all)

    @property
    def _all(self) -> list[Container]:
        return [*self._init, *self._main]

    def run(self) -> None:
        failure = ""
        try:
            self._run()
        except Exception as error:
            # A defect of the node must not look like a pod that runs: it is told in the status.
            log.exception("%s failed", self.name)
            failure = f"{type(error).__name__}: {error}"
        finally:
            self._clean_up()
        if failure:
            self._publish_failure("ProcessNodeError", failure)
        while self._ending is None:
            self._wake.wait()
        if self._ending is Ending.DELETED:
            self._delete()

    def _run(self) -> None:
        if self._pod.get("status", {}).get("phase") in ("Failed", "Succeeded"):
            return
        if problems := refusals(self._pod):
            self._publish_failure(REASON_UNSUPPORTED, "; ".join(problems))
            return
        self._make_containers()
        while self._ending is None:
            self._step()
            self._publish()
            if self._phase in ("Failed", "Succeeded"):
                return
            self._wake.wait(_TICK_SECONDS)
        self._terminate()

    # Running

    def _make_containers(self) -> None:
        spec = self._pod["spec"]
        policy = spec["restartPolicy"]
        # An init container that has succeeded is done, whatever the policy.
        self._init = [
            Container(c, self._runtime("OnFailure" if policy == "Always" else policy))
            for c in spec.get("initContainers") or []
        ]
        self._main = [Container(c, self._runtime(policy)) for c in spec["containers"]]
        before = {s["name"]: s for s in self._pod.get("status", {}).get("containerStatuses") or []}
        for container in self._main:
            container.resume(before.get(container.name, {}))

    def _runtime(self, restart_policy: str) -> Runtime:
        return Runtime(
            prepare=self._sandbox.prepare,
            probes=self._sandbox.probes,
            restart_policy=restart_policy,
            grace_seconds=float(
                self._pod["spec"].get("terminationGracePeriodSeconds", _DEFAULT_GRACE_SECONDS)
            ),
            clock=self._clock,
        )

    def _step(self) -> None:
        self._sandbox.sync(self._pod)
        if not self._sandbox.tried:
            return
        for container in self._init:
            container.step()
            if not container.succeeded:
                return
        for container in self._main:
            container.step()

    # Status

    @property
    def _previous(self) -> Json:
        """The status written last, or found at first: the watch may be behind."""
        return self._published or self._pod.get("status") or {}

    @property
    def _phase(self) -> str:
        return str((self._published or {}).get("phase", "Pending"))

    def _publish(self, extra: Json | None = None) -> None:
        """Write the status if it differs from what was written last; a failure is tried again."""
        if self._clock.monotonic() < self._publish_due:
            return
        status = self._status()
        status.update(extra or {})
        if _without_times(status) != _without_times(self._published):
            self._patch(status)

    def _status(self) -> Json:
        policy = self._pod["spec"]["restartPolicy"]
        return pod_status(
            self._previous,
            [c.report() for c in self._init],
            [c.report() for c in self._main],
            restart_policy="Never" if self._ending else policy,
            pod_ip=self._sandbox.address,
            host_ip=HOST_IP,
            started_at=self._started_at,
            now=self._clock.wall(),
        )

    def _publish_failure(self, reason: str, message: str) -> None:
        """Write a final failure, until the API server takes it or the pod is to end."""
        status = failed_status(self._previous, reason, message, self._clock.wall())
        while not self._patch(status) and self._ending is None:
            self._wake.wait(_PUBLISH_RETRY_SECONDS)

    def _patch(self, status: Json) -> bool:
        """Write the status; True if it is written, or there is no such pod any more."""
        # With the uid, a later pod of the same name is never touched.
        body = {"metadata": {"uid": self._pod["metadata"]["uid"]}, "status": status}
        try:
            self._services.api.patch(
                f"{self._api_path}/status", body, content_type=STRATEGIC_MERGE_PATCH
            )
        except ApiError as error:
            if error.status not in (404, 409):
                log.warning("%s: status not written: %s", self.name, error)
                self._publish_due = self._clock.monotonic() + _PUBLISH_RETRY_SECONDS
                return False
        self._published = status
        self._publish_due = float("-inf")
        return True

    # Ending

    def _terminate(self) -> None:
        """Stop the containers, then tell the API server what its object's state asks for."""
        began = self._clock.monotonic()
        log.info("%s ends: %s", self.name, self._ending and self._ending.value)
        while self._stop_all(began):
            self._publish_unless_gone()
            self._wake.wait(_TICK_SECONDS)
            self._wake.clear()
        self._publish_unless_gone()

    def _stop_all(self, began: float) -> bool:
        """Stop and step all; True while any still runs."""
        for container in self._all:
            container.stop(began + self._grace)
            container.step()
        return any(container.running for container in self._all)

    @property
    def _grace(self) -> float:
        metadata, spec = self._pod["metadata"], self._pod["spec"]
        seconds = metadata.get("deletionGracePeriodSeconds")
        if seconds is None:
            seconds = spec.get("terminationGracePeriodSeconds", _DEFAULT_GRACE_SECONDS)
        if self._ending is Ending.DELETED:
            return float(seconds)
        return min(float(seconds), _SHORT_GRACE_SECONDS)

    def _publish_unless_gone(self) -> None:
        if self._ending is Ending.DELETED:
            self._publish()
        elif self._ending is Ending.NODE_STOPS:
            message = "Pod was terminated in response to imminent node shutdown."
            stopped = not any(c.running for c in self._all)
            final = {"phase": "Failed", "reason": "Terminated", "message": message}
            self._publish(final if stopped else None)

    def _delete(self) -> None:
        """Delete the object for good, until that is done or the node stops."""
        options = {
            "gracePeriodSeconds": 0,
            "preconditions": {"uid": self._pod["metadata"]["uid"]},
        }
        while self._ending is Ending.DELETED:
            try:
                self._services.api.delete(self._api_path, options)
            except ApiError as error:
                if error.status in (404, 409):
                    return
                log.warning("%s not deleted yet: %s", self.name, error)
                self._wake.clear()
                self._wake.wait(_PUBLISH_RETRY_SECONDS)
            else:
                return

    def _clean_up(self) -> None:
        for container in self._all:
            container.kill()
        self._sandbox.close()


def _first_start(pod: Json) -> datetime | None:
    text = pod.get("status", {}).get("startTime")
    return datetime.fromisoformat(text) if text else None


def _without_times(status: Json | None) -> Json | None:
    """The status without the times of its conditions, which follow from the rest."""
    if status is None:
        return None
    conditions = [
        {key: value for key, value in condition.items() if key != "lastTransitionTime"}
        for condition in status["conditions"]
    ]
    return {**status, "conditions": conditions}
