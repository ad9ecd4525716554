"""Requests to an API server: errors told apart, watches read line by line, copies of objects."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from localcluster.processnode.api import STRATEGIC_MERGE_PATCH, ApiError, ClusterApi, ObjectCache


class Server(http.server.ThreadingHTTPServer):
    """Answers every request with `status` and `body`; keeps what it was asked."""

    status = 200
    body: bytes = b"{}"

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.asked.append((self.command, self.path, dict(self.headers), body))
        self.send_response(self.server.status)
        self.end_headers()
        self.wfile.write(self.server.body)

    def do_GET(self) -> None:
        self._answer()

    def do_PATCH(self) -> None:
        self._answer()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield server
        server.shutdown()


def api(server: Server, directory: Path) -> ClusterApi:
    path = directory / "kubeconfig"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}
        ],
        "users": [{"name": "u", "user": {"token": "secret"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path.write_text(json.dumps(config))
    return ClusterApi.from_kubeconfig(path)


def test_a_patch_says_its_kind(server: Server, tmp_path: Path) -> None:
    api(server, tmp_path).patch("/x", {"a": None}, content_type=STRATEGIC_MERGE_PATCH)
    method, path, headers, body = server.asked[0]
    assert (method, path, json.loads(body)) == ("PATCH", "/x", {"a": None})
    assert headers["Content-Type"] == STRATEGIC_MERGE_PATCH


def test_a_refusal_has_its_status_and_message(server: Server, tmp_path: Path) -> None:
    server.status, server.body = 404, b'{"kind": "Status", "message": "pods \\"a\\" not found"}'
    with pytest.raises(ApiError, match='GET /x: 404 pods "a" not found') as refused:
        api(server, tmp_path).get("/x")
    assert refused.value.not_found


def test_what_is_no_json_is_an_error_and_not_an_empty_object(
    server: Server, tmp_path: Path
) -> None:
    server.body = b"<html>welcome</html>"
    with pytest.raises(ApiError):
        api(server, tmp_path).get("/x")
    server.status = 502
    with pytest.raises(ApiError, match="502 <html>welcome"):
        api(server, tmp_path).get("/x")


def test_an_unreachable_server_has_no_status(server: Server, tmp_path: Path) -> None:
    client = api(server, tmp_path)
    server.server_close()
    server.shutdown()
    with pytest.raises(ApiError, match="GET /x") as failed:
        client.get("/x")
    assert failed.value.status is None


def test_a_watch_yields_events_until_it_ends(server: Server, tmp_path: Path) -> None:
    events = [{"type": "ADDED", "object": {"n": 1}}, {"type": "DELETED", "object": {"n": 2}}]
    server.body = b"\n".join(json.dumps(event).encode() for event in events) + b"\n"
    seen = list(api(server, tmp_path).watch("/pods", query={"resourceVersion": "7"}, seconds=3))
    assert seen == [("ADDED", {"n": 1}), ("DELETED", {"n": 2})]
    assert server.asked[0][1] == "/pods?resourceVersion=7&watch=true&timeoutSeconds=3"


def test_a_watch_that_is_too_old_says_so(server: Server, tmp_path: Path) -> None:
    event = {"type": "ERROR", "object": {"code": 410, "message": "too old"}}
    server.body = json.dumps(event).encode() + b"\n"
    with pytest.raises(ApiError) as gone:
        list(api(server, tmp_path).watch("/pods", query={}, seconds=3))
    assert gone.value.status == 410


class Objects:
    """Answers one path with `answer`, or raises it."""

    def __init__(self) -> None:
        self.answer: Any = {"data": {"k": "1"}}
        self.reads = 0

    def get(self, path: str) -> Any:
        assert path == "/api/v1/namespaces/d/configmaps/m"
        self.reads += 1
        if isinstance(self.answer, ApiError):
            raise self.answer
        return self.answer


def test_a_copy_is_read_again_when_it_is_old(tmp_path: Path) -> None:
    now, objects = [0.0], Objects()
    cache = ObjectCache(objects, 1.0, lambda: now[0])  # type: ignore[arg-type]
    for now[0] in (0.0, 0.5, 0.9):
        assert cache.config_map("d", "m") == {"data": {"k": "1"}}
    assert objects.reads == 1
    now[0] = 1.0
    objects.answer = ApiError(404, "gone")
    assert cache.config_map("d", "m") is None
    now[0] = 2.0
    objects.answer = ApiError(None, "unreachable")
    assert cache.config_map("d", "m") is None, "the last answer holds"
    assert objects.reads == 3
