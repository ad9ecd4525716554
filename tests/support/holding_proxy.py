"""A proxy before the API server that can hold a request, to kill a client at an exact step.

A request is held BEFORE it is forwarded (the API server never saw it) or AFTER the API server has
carried it out but before the client hears of it. Production code needs no switch for this.
"""

from __future__ import annotations

import http.client
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import yaml

from tests.support.server import Server

HOLD_LIMIT = 300.0
_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "host", "content-length"}


class Stage(Enum):
    """Where a request is held."""

    BEFORE = "before it is forwarded"
    AFTER = "after it was carried out"


@dataclass(frozen=True)
class Request:
    """What a hold may look at. path includes the query."""

    method: str
    path: str
    body: bytes


@dataclass
class Hold:
    """Holds the first request that matches; later ones pass."""

    matches: Callable[[Request], bool]
    stage: Stage
    request: Request | None = None
    _reached: threading.Event = field(default_factory=threading.Event)
    _decided: threading.Event = field(default_factory=threading.Event)
    _dropped: bool = False
    answered: bytes | None = None

    def wait(self, seconds: float) -> Request:
        """Until a request is held. Raises TimeoutError."""
        if not self._reached.wait(seconds) or self.request is None:
            raise TimeoutError(f"no request was held {self.stage.value} within {seconds} s")
        return self.request

    def drop(self) -> None:
        """The request goes no further and is never answered."""
        self._dropped = True
        self._decided.set()

    def answer(self, line: bytes) -> None:
        """The request goes no further: it is answered with this, status 200, by the proxy."""
        self.answered = line
        self.drop()

    def release(self) -> None:
        """The request goes on."""
        self._decided.set()

    def take(self, request: Request) -> None:
        """Called by the proxy: this is the one."""
        self.request = request

    def pass_or_drop(self) -> bool:
        """Called by the proxy: hold here; whether to go on."""
        self._reached.set()
        return self._decided.wait(HOLD_LIMIT) and not self._dropped


class HoldingProxy:
    """Plain HTTP on loopback for the client, TLS to the API server; tokens pass through."""

    def __init__(self, server: str, ca_file: Path) -> None:
        self._upstream = urlsplit(server)
        self._tls = ssl.create_default_context(cafile=str(ca_file))
        self._holds: list[Hold] = []
        self._lock = threading.Lock()
        self._listener = Server(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._listener.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        for hold in self._holds:
            hold.drop()
        self._listener.shutdown()
        self._listener.server_close()

    def hold(self, stage: Stage, matches: Callable[[Request], bool]) -> Hold:
        """Hold the next request that matches."""
        hold = Hold(matches, stage)
        with self._lock:
            self._holds.append(hold)
        return hold

    def kubeconfig(self, path: Path, token: str) -> Path:
        """Write a kubeconfig that leads through this proxy."""
        url = f"http://127.0.0.1:{self._listener.server_address[1]}"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "proxy", "cluster": {"server": url}}],
            "users": [{"name": "user", "user": {"token": token}}],
            "contexts": [{"name": "proxy", "context": {"cluster": "proxy", "user": "user"}}],
            "current-context": "proxy",
        }
        path.write_text(yaml.safe_dump(config))
        return path

    def _claim(self, request: Request) -> Hold | None:
        with self._lock:
            for hold in self._holds:
                if hold.request is None and hold.matches(request):
                    hold.take(request)
                    return hold
        return None

    def _connect(self) -> http.client.HTTPSConnection:
        host, port = self._upstream.hostname or "", self._upstream.port
        return http.client.HTTPSConnection(host, port, context=self._tls)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            def _serve(self) -> None:
                self.close_connection = True
                length = int(self.headers.get("Content-Length") or 0)
                request = Request(self.command, self.path, self.rfile.read(length))
                hold = proxy._claim(request)
                if hold and hold.stage is Stage.BEFORE and not hold.pass_or_drop():
                    if hold.answered is not None:
                        self._answer(hold.answered)
                    return
                connection = proxy._connect()
                try:
                    self._relay(connection, request, hold)
                except (BrokenPipeError, ConnectionResetError, http.client.IncompleteRead):
                    pass  # The client was killed, or the API server: nobody is left to talk to.
                finally:
                    connection.close()

            def _answer(self, body: bytes) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Connection", "close")
                self.end_headers()
                self.wfile.write(body)

            def _relay(
                self, connection: http.client.HTTPSConnection, request: Request, hold: Hold | None
            ) -> None:
                headers = {k: v for k, v in self.headers.items() if k.lower() not in _HOP_BY_HOP}
                connection.request(request.method, request.path, request.body, headers)
                answer = connection.getresponse()
                if hold and hold.stage is Stage.AFTER and not hold.pass_or_drop():
                    return
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in _HOP_BY_HOP:
                        self.send_header(name, value)
                self.send_header("Connection", "close")
                self.end_headers()
                while chunk := answer.read1(65536):
                    self.wfile.write(chunk)
                    self.wfile.flush()

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        return Handler
