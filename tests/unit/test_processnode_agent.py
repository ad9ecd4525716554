"""How a node follows its pods through whatever the API server does, and keeps itself registered."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from localcluster.processnode.agent import DirectoryInUseError, NodeAgent, WorkingDirectory
from localcluster.processnode.api import ApiError

PATIENCE = 20.0


class FakeApi:
    """An API server with scripted lists and watches; it records what the node writes."""

    server = "https://127.0.0.1:6443"
    ca_file = None

    def __init__(self) -> None:
        self.lists: list[list[Any] | ApiError] = []
        self.watches: list[list[tuple[str, Any]] | ApiError] = []
        self.watched: list[str] = []
        self.writes: list[tuple[str, str, Any]] = []
        self.node_exists = True
        self.lock = threading.Lock()

    def get(self, path: str, query: Any = None) -> Any:
        assert path == "/api/v1/pods"
        assert query == {"fieldSelector": "spec.nodeName=n"}
        with self.lock:
            items = self.lists.pop(0) if len(self.lists) > 1 else self.lists[0]
        if isinstance(items, ApiError):
            raise items
        return {"metadata": {"resourceVersion": str(len(self.watched))}, "items": items}

    def watch(self, path: str, query: Any, seconds: int) -> Iterator[tuple[str, Any]]:
        with self.lock:
            self.watched.append(query["resourceVersion"])
            events = self.watches.pop(0) if self.watches else []
        if isinstance(events, ApiError):
            raise events
        yield from events
        time.sleep(0.05)

    def patch(self, path: str, body: Any, **_: Any) -> Any:
        self.writes.append(("PATCH", path, body))
        if path.startswith("/api/v1/nodes/") and not self.node_exists:
            raise ApiError(404, path)
        return {"metadata": {"uid": "node-uid"}}

    def create(self, path: str, body: Any) -> Any:
        self.writes.append(("POST", path, body))
        self.node_exists = True
        return body

    def delete(self, path: str, options: Any = None) -> None:
        self.writes.append(("DELETE", path, options))

    def wrote(self, method: str, path: str) -> list[Any]:
        return [body for m, p, body in self.writes if (m, p) == (method, path)]


def refused_pod(name: str, **metadata: Any) -> dict[str, Any]:
    """A pod that the node answers without starting anything."""
    return {
        "metadata": {"name": name, "namespace": "d", "uid": f"uid-{name}", **metadata},
        "spec": {"hostNetwork": True, "containers": []},
    }


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait a second before each new try."""
    monkeypatch.setattr("localcluster.processnode.agent._RETRY_SECONDS", 0.02)


@contextmanager
def running(api: FakeApi, directory: Path) -> Iterator[NodeAgent]:
    agent = NodeAgent(api, "n", directory)  # type: ignore[arg-type]
    thread = threading.Thread(target=agent.run)
    thread.start()
    try:
        yield agent
    finally:
        agent.stop.set()
        thread.join(PATIENCE)
        assert not thread.is_alive()


def eventually(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def status_path(name: str) -> str:
    return f"/api/v1/namespaces/d/pods/{name}/status"


def test_a_pod_it_cannot_run_is_failed_by_name(tmp_path: Path) -> None:
    api = FakeApi()
    api.lists = [[refused_pod("a")]]
    with running(api, tmp_path):
        eventually(lambda: api.wrote("PATCH", status_path("a")))
    body = api.wrote("PATCH", status_path("a"))[0]
    assert body["metadata"]["uid"] == "uid-a"
    assert (body["status"]["phase"], body["status"]["reason"]) == ("Failed", "UnsupportedPodField")
    assert "spec.hostNetwork" in body["status"]["message"]


@pytest.mark.parametrize(
    "error",
    [ApiError(410, "too old resource version"), ApiError(None, "connection reset")],
    ids=["version too old", "connection lost"],
)
def test_after_a_broken_watch_it_lists_again(tmp_path: Path, error: ApiError) -> None:
    api = FakeApi()
    api.lists = [[], [refused_pod("a")]]
    api.watches = [error]
    with running(api, tmp_path):
        eventually(lambda: api.wrote("PATCH", status_path("a")))


def test_an_unreachable_api_server_is_tried_again(tmp_path: Path) -> None:
    api = FakeApi()
    api.lists = [ApiError(None, "refused"), ApiError(503, "starting"), [refused_pod("a")]]
    with running(api, tmp_path):
        eventually(lambda: api.wrote("PATCH", status_path("a")))


def test_a_pod_in_the_watch_is_taken_and_one_marked_deleted_is_deleted_for_good(
    tmp_path: Path,
) -> None:
    api = FakeApi()
    api.lists = [[]]
    deleted = refused_pod("a", deletionTimestamp="2026-01-01T00:00:00Z")
    api.lists = [[], [deleted]]
    api.watches = [[("ADDED", refused_pod("a")), ("MODIFIED", deleted)]]
    path = "/api/v1/namespaces/d/pods/a"
    with running(api, tmp_path):
        eventually(lambda: api.wrote("DELETE", path))
    options = api.wrote("DELETE", path)[0]
    assert options == {"gracePeriodSeconds": 0, "preconditions": {"uid": "uid-a"}}


def test_it_registers_itself_renews_and_leaves(tmp_path: Path) -> None:
    api = FakeApi()
    api.lists = [[]]
    api.node_exists = False
    with running(api, tmp_path) as agent:
        assert agent.ready.wait(PATIENCE)
    (node,) = api.wrote("POST", "/api/v1/nodes")
    assert node["metadata"]["labels"]["kubernetes.io/hostname"] == "n"
    status = api.wrote("PATCH", "/api/v1/nodes/n/status")[-1]["status"]
    assert {c["type"]: c["status"] for c in status["conditions"]}["Ready"] == "True"
    assert set(status["capacity"]) == {"cpu", "memory", "pods"}
    lease_path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n"
    assert api.wrote("PATCH", lease_path)[0]["spec"]["holderIdentity"] == "n"
    assert api.wrote("DELETE", "/api/v1/nodes/n")
    assert api.wrote("DELETE", lease_path)


def test_a_directory_serves_one_node_and_is_cleared_of_an_earlier_life(tmp_path: Path) -> None:
    (tmp_path / "pods" / "old").mkdir(parents=True)
    first = WorkingDirectory(tmp_path)
    assert list((tmp_path / "pods").iterdir()) == []
    with pytest.raises(DirectoryInUseError, match="is in use by another node"):
        WorkingDirectory(tmp_path)
    first.close()
    assert not (tmp_path / "pods").exists()
    WorkingDirectory(tmp_path).close()


def test_a_defect_of_the_node_ends_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    api = FakeApi()
    api.lists = [[{"not": "a pod"}]]
    with running(api, tmp_path) as agent:
        assert agent.stop.wait(PATIENCE)
    assert agent.failed
    assert "the node stops" in caplog.text


def test_a_defect_in_one_pod_is_told_in_its_status(tmp_path: Path) -> None:
    api = FakeApi()
    pod = refused_pod("a")
    pod["spec"] = {"containers": [{"name": "c", "command": ["true"]}]}  # no restartPolicy
    api.lists = [[pod]]
    with running(api, tmp_path) as agent:
        eventually(lambda: api.wrote("PATCH", status_path("a")))
        assert not agent.failed
    status = api.wrote("PATCH", status_path("a"))[0]["status"]
    assert (status["phase"], status["reason"]) == ("Failed", "ProcessNodeError")
    assert "restartPolicy" in status["message"]
