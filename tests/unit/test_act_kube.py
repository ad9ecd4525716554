"""The client for the API server: exact requests, typed errors, a time limit on every call."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from evictune import kube
from evictune.kube import TOKEN_LOOK_INTERVAL, ApiError, KubeApi, looking_seldom
from kubernetes import client


class Server:
    """Answers by path, and keeps what it was asked."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, bytes, float]] = {}
        self.asked: list[tuple[str, str, str, str]] = []
        scene = self

        class Handler(BaseHTTPRequestHandler):
            def _serve(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length).decode()
                kind = self.headers.get("Content-Type", "")
                scene.asked.append((self.command, self.path, kind, body))
                status, answer, delay = scene.answers[self.path]
                time.sleep(delay)
                self.send_response(status)
                self.send_header("Content-Length", str(len(answer)))
                with contextlib.suppress(BrokenPipeError):  # the client gave up
                    self.end_headers()
                    self.wfile.write(answer)

            do_GET = do_PATCH = do_POST = _serve  # noqa: N815

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        self.listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.listener.serve_forever, daemon=True).start()

    def answer(self, path: str, status: int, body: Any, delay: float = 0.0) -> None:
        text = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.answers[path] = (status, text, delay)

    def api(self) -> KubeApi:
        configuration = client.Configuration()
        configuration.host = f"http://127.0.0.1:{self.listener.server_address[1]}"
        return KubeApi(configuration)


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.listener.shutdown()
    made.listener.server_close()


def status_object(code: int, reason: str, **details: Any) -> dict[str, Any]:
    return {
        "kind": "Status",
        "code": code,
        "reason": reason,
        "message": f"it is {reason}",
        "details": details,
    }


def test_an_object_is_its_json(server: Server) -> None:
    server.answer("/a", 200, {"x": 1})
    assert server.api().get("/a") == {"x": 1}


def test_absence_is_none_and_other_errors_are_typed(server: Server) -> None:
    server.answer("/gone", 404, status_object(404, "NotFound"))
    server.answer("/no", 403, status_object(403, "Forbidden"))
    api = server.api()
    assert api.get_or_none("/gone") is None
    with pytest.raises(ApiError, match=r"Forbidden \(403\): it is Forbidden") as caught:
        api.get_or_none("/no")
    assert caught.value.status == 403


def test_causes_of_a_conflict_are_kept(server: Server) -> None:
    cause = {"reason": "FieldManagerConflict", "message": 'conflict with "kubectl-edit" using v1'}
    path = "/a?fieldManager=evictune&force=false"
    server.answer(path, 409, status_object(409, "Conflict", causes=[cause]))
    with pytest.raises(ApiError) as caught:
        server.api().apply("/a", {"kind": "ConfigMap"})
    assert caught.value.causes == (cause,)


def test_apply_is_never_forced_and_says_who_applies(server: Server) -> None:
    path = "/a?fieldManager=evictune&force=false"
    server.answer(path, 200, {})
    server.api().apply("/a", {"kind": "ConfigMap"})
    assert server.asked == [
        ("PATCH", path, "application/apply-patch+yaml", '{"kind": "ConfigMap"}'),
    ]


def test_a_collection_that_is_null_is_empty(server: Server) -> None:
    server.answer("/c?limit=500", 200, {"items": None, "metadata": None})
    assert list(server.api().items("/c")) == []


def test_a_long_collection_is_read_page_by_page(server: Server) -> None:
    first = {"items": [{"n": 1}], "metadata": {"continue": "more"}}
    server.answer("/c?limit=500&labelSelector=a%3Db", 200, first)
    server.answer("/c?limit=500&labelSelector=a%3Db&continue=more", 200, {"items": [{"n": 2}]})
    found = list(server.api().items("/c", {"labelSelector": "a=b"}))
    assert found == [{"n": 1}, {"n": 2}]


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (502, b"<html>bad gateway</html>", r"\(502\): <html>bad gateway"),
        (200, b"<html>login</html>", "<html>login"),
        (200, b"[]", "not an object"),
    ],
)
def test_what_is_no_json_object_is_an_error(
    server: Server, status: int, body: bytes, message: str
) -> None:
    server.answer("/a", status, body)
    with pytest.raises(ApiError, match=message):
        server.api().get("/a")


def test_a_server_that_hangs_or_is_away_is_an_error_in_time(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kube, "READ_TIMEOUT", 0.2)
    server.answer("/slow", 200, {}, delay=3.0)
    began = time.monotonic()
    with pytest.raises(ApiError, match="API server: ") as caught:
        server.api().get("/slow")
    assert caught.value.status == 0
    assert time.monotonic() - began < 2.5
    configuration = client.Configuration()
    configuration.host = "http://127.0.0.1:1"
    with pytest.raises(ApiError, match="API server: "):
        KubeApi(configuration).get("/a")


def test_a_write_that_failed_is_not_repeated(server: Server) -> None:
    server.answer("/a?fieldManager=evictune&force=false", 500, status_object(500, "InternalError"))
    with pytest.raises(ApiError):
        server.api().apply("/a", {})
    assert len(server.asked) == 1


def test_a_rotated_token_is_looked_for_again_and_again_but_not_at_every_request() -> None:
    configuration, now, tokens = client.Configuration(), [0.0], iter("abc")

    def look(configuration: client.Configuration) -> None:
        """As the client's loaders do: all anew, itself too."""
        configuration.api_key["BearerToken"] = next(tokens)
        configuration.refresh_api_key_hook = look

    look(configuration)
    looking_seldom(configuration, lambda: now[0])
    seen = []
    for now[0] in (0.0, 1.0, TOKEN_LOOK_INTERVAL, 6.0, 7.0, 2 * TOKEN_LOOK_INTERVAL, 11.0):
        seen.append(configuration.get_api_key_with_prefix("BearerToken"))
    assert seen == ["a", "a", "b", "b", "b", "c", "c"]
