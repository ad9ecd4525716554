"""A small HTTP server on loopback that answers as a test tells it: pages, refusals, silence."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.support.server import Server


@dataclass(frozen=True)
class Answer:
    """What a request gets. hang: accept the connection and never answer. cut: hang up halfway."""

    body: str = ""
    status: int = 200
    content_type: str = "text/plain; version=0.0.4"
    headers: dict[str, str] = field(default_factory=dict)
    hang: bool = False
    seconds_a_byte: float = 0.0
    cut: bool = False


@dataclass(frozen=True)
class Asked:
    """A request as it came: its path, its query's or form's parameters and its headers."""

    path: str
    parameters: dict[str, str]
    headers: dict[str, str]


Responder = Callable[[Asked], Answer]


@dataclass
class PageServer:
    """Where it listens, what it was asked, and how it answers (may be changed while it runs)."""

    url: str
    respond: Responder
    asked: list[Asked] = field(default_factory=list)


@contextmanager
def serve(
    respond: Responder,
    host: str = "127.0.0.1",
    port: int = 0,
    tls: ssl.SSLContext | None = None,
) -> Iterator[PageServer]:
    """Serve until the block ends; hanging requests are then let go. tls: speak TLS with this."""
    released = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(urlsplit(self.path).query)

        def do_POST(self) -> None:
            self._answer(self.rfile.read(int(self.headers["Content-Length"])).decode())

        def _answer(self, query: str) -> None:
            parts = urlsplit(self.path)
            parameters = {name: values[0] for name, values in parse_qs(query).items()}
            asked = Asked(parts.path, parameters, dict(self.headers.items()))
            page_server.asked.append(asked)
            answer = page_server.respond(asked)
            if answer.hang:
                released.wait(60)
                return
            body = answer.body.encode("utf-8", "surrogateescape")
            drip = answer.seconds_a_byte
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.content_type)
            self.send_header("Content-Length", str(len(body)))
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.end_headers()
            if answer.cut:
                body = body[: len(body) // 2]
            for start in range(0, len(body), 1 if drip else len(body) or 1):
                if drip and released.wait(drip):
                    return
                self.wfile.write(body[start : start + 1] if drip else body)

        def log_message(self, *_: Any) -> None:
            """Tests read their own output."""

    server = Server((host, port), Handler)
    if tls is not None:
        # The handshake is the connection's thread's: a client that refuses it stops nobody else.
        server.socket = tls.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
    scheme = "http" if tls is None else "https"
    page_server = PageServer(f"{scheme}://{host}:{server.server_address[1]}", respond)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield page_server
    finally:
        released.set()
        server.shutdown()
        thread.join()
        server.server_close()
