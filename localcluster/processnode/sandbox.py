"""What the containers of one pod share: its address, volumes, and how each is to be launched."""

from __future__ import annotations

import logging
import shutil
from concurrent.futures import Executor, Future, wait
from dataclasses import dataclass, field
from pathlib import Path

from localcluster.processnode.addresses import AddressPool
from localcluster.processnode.api import ApiError, ClusterApi, Json, ObjectCache
from localcluster.processnode.container import Clock
from localcluster.processnode.environment import EnvironmentResolver, base_environment, expand
from localcluster.processnode.errors import NotReadyError, VolumeNotReadyError
from localcluster.processnode.probes import Probe, ProbeSet, make_check
from localcluster.processnode.process import Launch
from localcluster.processnode.volumes import PodVolumes, TokenSource

log = logging.getLogger(__name__)

HOST_IP = "127.0.0.1"
_VOLUME_SYNC_SECONDS = 0.5
_SYNC_END_SECONDS = 5.0
_PROBE_KINDS = ("startupProbe", "readinessProbe", "livenessProbe")


@dataclass(frozen=True)
class Services:
    """What the pods of a node share."""

    api: ClusterApi
    objects: ObjectCache
    addresses: AddressPool
    directory: Path
    probers: Executor
    readers: Executor
    clock: Clock = field(default_factory=Clock)


def log_file(directory: Path, namespace: str, pod: str, container: str) -> Path:
    """Where a node with this directory writes a container's output, all runs one after another."""
    return directory / "logs" / namespace / pod / f"{container}.log"


class Sandbox:
    """A pod's place on the machine. `sync` must be called all the time; `close` removes it."""

    def __init__(self, pod: Json, services: Services) -> None:
        self.address = ""
        self._pod = pod
        self._services = services
        self._clock = services.clock
        self._directory = services.directory / "pods" / pod["metadata"]["uid"]
        tokens = TokenSource(services.api, pod, services.clock.monotonic)
        place = self._directory / "volumes"
        self._volumes = PodVolumes(pod, place, services.objects, tokens)
        self._running_sync: Future[None] | None = None
        self._sync_due = float("-inf")
        self._ready = False
        self._problem: Exception | None = VolumeNotReadyError("volumes are being set up")
        # Logs of an earlier pod of this name are not this one's.
        shutil.rmtree(self.log_file("any").parent, ignore_errors=True)

    @property
    def tried(self) -> bool:
        """Whether the volumes have been set up, or it is known why not."""
        return self._ready or self._sync_due > float("-inf")

    def sync(self, pod: Json) -> None:
        """Keep the volumes true to the API, given the pod's present object.

        The work is done in the background: an API server that hangs must not hold up the pod.
        """
        self._pod = pod
        now = self._clock.monotonic()
        if self._running_sync is None:
            if now >= self._sync_due:
                self._running_sync = self._services.readers.submit(self._volumes.sync, pod)
        elif self._running_sync.done():
            self._take_outcome(self._running_sync.exception())
            self._running_sync = None
            self._sync_due = now + _VOLUME_SYNC_SECONDS

    def prepare(self, container: Json) -> Launch:
        """What to run for a container; see Runtime.prepare.

        Volumes must have been complete once; a later problem does not hold up a restart.
        """
        if not self._ready and self._problem is not None:
            raise self._problem
        if not self.address:
            self.address = self._services.addresses.acquire(_tcp_ports(self._pod))
        mounts = self._volumes.mounts(container)
        pod = self._pod_with_address()
        variables = EnvironmentResolver(pod, self._services.objects).resolve(container)
        base = base_environment(self._services.api.server, pod["metadata"]["name"])
        words = [*container["command"], *(container.get("args") or [])]
        output = self.log_file(container["name"])
        output.parent.mkdir(parents=True, exist_ok=True)
        return Launch(
            argv=[mounts.rewrite(expand(word, variables)) for word in words],
            env={**base, **{name: mounts.rewrite(text) for name, text in variables.items()}},
            cwd=mounts.rewrite(container.get("workingDir") or self._scratch(container["name"])),
            log=str(output),
        )

    def probes(self, container: Json, launch: Launch) -> ProbeSet:
        """The probes of a new run of a container."""
        mounts = self._volumes.mounts(container)
        probes = {}
        for kind in _PROBE_KINDS:
            if spec := container.get(kind):
                if "exec" in spec:
                    command = [mounts.rewrite(word) for word in spec["exec"]["command"]]
                    spec = {**spec, "exec": {"command": command}}
                check = make_check(spec, container, self.address, launch)
                probes[kind] = Probe(spec, check, self._services.probers, self._clock.monotonic())
        return ProbeSet(probes)

    def log_file(self, container: str) -> Path:
        metadata = self._pod["metadata"]
        return log_file(
            self._services.directory, metadata["namespace"], metadata["name"], container
        )

    def close(self) -> None:
        """Give the address back and remove the pod's directory, once no process uses them."""
        if self._running_sync is not None and not self._running_sync.cancel():
            wait([self._running_sync], _SYNC_END_SECONDS)  # it would make the directory again
        if self.address:
            self._services.addresses.release(self.address)
        shutil.rmtree(self._directory, ignore_errors=True)

    def _take_outcome(self, problem: BaseException | None) -> None:
        if problem is not None and not isinstance(problem, NotReadyError | ApiError):
            raise problem
        if str(problem) != str(self._problem):
            name = f"{self._pod['metadata']['namespace']}/{self._pod['metadata']['name']}"
            log.info("pod %s: volumes: %s", name, problem or "ready")
        self._problem = problem
        self._ready = self._ready or problem is None

    def _scratch(self, name: str) -> str:
        """A fresh working directory, as a container's own file system is at each start."""
        directory = self._directory / "containers" / name
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        return str(directory)

    def _pod_with_address(self) -> Json:
        """The pod with the addresses that its status in the API may not show yet."""
        addresses = {
            "podIP": self.address,
            "podIPs": [{"ip": self.address}],
            "hostIP": HOST_IP,
            "hostIPs": [{"ip": HOST_IP}],
        }
        return {**self._pod, "status": {**self._pod.get("status", {}), **addresses}}


def _tcp_ports(pod: Json) -> list[int]:
    """The ports that the pod's containers say they will listen on."""
    return [
        port["containerPort"]
        for container in pod["spec"]["containers"]
        for port in container.get("ports") or []
        if port.get("protocol", "TCP") == "TCP"
    ]
