"""The node's own process: keeps the Node object alive, and runs the pods bound to it.

ClusterApi --list and watch, spec.nodeName=NAME--> NodeAgent --> one PodWorker a pod
"""

from __future__ import annotations

import fcntl
import logging
import shutil
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

from localcluster.processnode.addresses import AddressPool
from localcluster.processnode.api import ApiError, ClusterApi, Json, ObjectCache
from localcluster.processnode.logserver import ContainerLog, LogServer
from localcluster.processnode.pod import Ending, PodWorker
from localcluster.processnode.registration import Registration
from localcluster.processnode.sandbox import HOST_IP, Services

log = logging.getLogger(__name__)

_HEARTBEAT_SECONDS = 10.0
_RETRY_SECONDS = 1.0
# A watch ends after this long; the list that follows is the resync.
_WATCH_SECONDS = 30
_PROBE_THREADS = 16
_READ_THREADS = 8
# A pod has 2 s to stop when the node does; the rest is for telling the API server.
_STOP_SECONDS = 10.0


class DirectoryInUseError(Exception):
    """Another node's process works in the directory."""


class WorkingDirectory:
    """A node's directory, locked while the node lives, and cleared of an earlier life's rests.

    Holds `pods/` (removed at the end), `logs/` (kept until the next start) and `lock`.
    """

    def __init__(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self.path = path.resolve()
        self._lock: IO[str] = (self.path / "lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise DirectoryInUseError(
                f"directory {self.path} is in use by another node: stop it or name another one"
            ) from None
        for part in ("pods", "logs"):
            shutil.rmtree(self.path / part, ignore_errors=True)
        # Secrets and tokens are in there, for this user only.
        (self.path / "pods").mkdir(mode=0o700)
        (self.path / "logs").mkdir(mode=0o700)

    def close(self) -> None:
        shutil.rmtree(self.path / "pods", ignore_errors=True)
        (self.path / "lock").unlink(missing_ok=True)
        self._lock.close()


class NodeAgent:
    """Runs a node until `stop` is set.

    `ready` is set once the node is registered; `failed` if a defect of its own has ended it.
    """

    def __init__(self, api: ClusterApi, name: str, directory: Path) -> None:
        self.stop = threading.Event()
        self.ready = threading.Event()
        self.failed = False
        self._api = api
        self._name = name
        self._lock = threading.Lock()  # guards the two collections below
        self._workers: dict[str, PodWorker] = {}
        self._leaving: list[PodWorker] = []
        self._probers = ThreadPoolExecutor(_PROBE_THREADS, thread_name_prefix="probe")
        self._readers = ThreadPoolExecutor(_READ_THREADS, thread_name_prefix="read")
        self._services = Services(
            api=api,
            objects=ObjectCache(api),
            addresses=AddressPool(),
            directory=directory,
            probers=self._probers,
            readers=self._readers,
        )
        # Without an authority to check its clients by, logs are read as files only.
        self._logs = LogServer(HOST_IP, api.ca_file, self._find_log) if api.ca_file else None
        self._registration = Registration(api, name, self._logs.port if self._logs else 0)

    def run(self) -> None:
        """Register, then run pods until `stop` is set; at the end no process of theirs is left."""
        for task in (self._keep_alive, self._follow_pods):
            threading.Thread(target=self._guarded, args=(task,), daemon=True).start()
        self.stop.wait()
        self._end_pods()
        try:
            self._registration.remove()
        except ApiError as error:  # the cluster may have gone before its node
            log.info("not unregistered: %s", error)
        for executor in (self._probers, self._readers):
            executor.shutdown(wait=False, cancel_futures=True)
        if self._logs:
            self._logs.close()

    def _find_log(self, namespace: str, pod: str, container: str) -> ContainerLog | None:
        with self._lock:
            workers = [*self._leaving, *self._workers.values()]
        found = (worker.find_log(namespace, pod, container) for worker in reversed(workers))
        return next(filter(None, found), None)

    def _guarded(self, task: Callable[[], None]) -> None:
        """Run one of the node's tasks; a defect in it ends the node, for half a node is none."""
        try:
            task()
        except Exception:
            log.exception("%s failed: the node stops", task.__name__)
            self.failed = True
            self.stop.set()

    def _keep_alive(self) -> None:
        while not self.stop.is_set():
            try:
                self._registration.renew()
            except ApiError as error:
                log.warning("heartbeat: %s", error)
                self.stop.wait(_RETRY_SECONDS)
            else:
                self.ready.set()
                self.stop.wait(_HEARTBEAT_SECONDS)

    def _follow_pods(self) -> None:
        while not self.stop.is_set():
            try:
                self._list_and_watch()
            except ApiError as error:
                if error.status != 410:  # Gone: the version is too old to watch from, list again
                    log.warning("pods: %s", error)
                    self.stop.wait(_RETRY_SECONDS)

    def _list_and_watch(self) -> None:
        query = {"fieldSelector": f"spec.nodeName={self._name}"}
        listed = self._api.get("/api/v1/pods", query=query)
        self._take_all(listed["items"])
        watched = {**query, "resourceVersion": listed["metadata"]["resourceVersion"]}
        for kind, pod in self._api.watch("/api/v1/pods", query=watched, seconds=_WATCH_SECONDS):
            if kind == "DELETED":
                self._drop(pod["metadata"]["uid"])
            else:
                self._take(pod)

    def _take_all(self, pods: Iterable[Json]) -> None:
        present = {pod["metadata"]["uid"]: pod for pod in pods}
        for uid in set(self._workers) - set(present):
            self._drop(uid)
        for pod in present.values():
            self._take(pod)

    def _take(self, pod: Json) -> None:
        uid = pod["metadata"]["uid"]
        with self._lock:
            if self.stop.is_set():
                return
            if uid in self._workers:
                self._workers[uid].update(pod)
                return
            log.info("pod %s/%s", pod["metadata"]["namespace"], pod["metadata"]["name"])
            self._workers[uid] = PodWorker(pod, self._services)
            self._workers[uid].update(pod)
            self._workers[uid].start()

    def _drop(self, uid: str) -> None:
        with self._lock:
            worker = self._workers.pop(uid, None)
            if worker is not None:
                worker.end(Ending.GONE)
                self._leaving = [w for w in self._leaving if w.is_alive()] + [worker]

    def _end_pods(self) -> None:
        with self._lock:
            workers = [*self._workers.values(), *self._leaving]
        for worker in workers:
            worker.end(Ending.NODE_STOPS)
        deadline = time.monotonic() + _STOP_SECONDS
        for worker in workers:
            worker.join(max(0.0, deadline - time.monotonic()))
