"""The one part of kubelet's own HTTPS API that a ProcessNode serves: what `kubectl logs` asks for.

    kubectl --> API server --GET /containerLogs/NAMESPACE/POD/CONTAINER--> here --> the log file

Clients must show a certificate of the cluster's authority (the one in the kubeconfig), as the API
server does: logs are not for every user of the machine. The server's own certificate is made at
start and signed by itself; the API server does not check it unless it is told an authority.
"""

from __future__ import annotations

import datetime
import http.server
import logging
import ssl
import sys
import tempfile
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

log = logging.getLogger(__name__)

_CERTIFICATE_LIFE = datetime.timedelta(days=365)
_FOLLOW_SECONDS = 0.2
_POLL_SECONDS = 0.1
_CONNECTION_TIMEOUT_SECONDS = 30.0
_SUPPORTED = {"follow", "tailLines", "limitBytes"}


@dataclass(frozen=True)
class ContainerLog:
    """A container's log, and whether it may still grow."""

    path: Path
    growing: Callable[[], bool]


FindLog = Callable[[str, str, str], ContainerLog | None]
"""Looks up a log by namespace, pod and container; None if there is no such container."""


class LogServer:
    """Serves logs on a free port of `address` until it is closed."""

    def __init__(self, address: str, ca_file: Path, find: FindLog) -> None:
        class Handler(_Handler):
            find_log = staticmethod(find)

        self._server = _Server((address, 0), Handler)
        self._server.socket = _tls_context(address, ca_file).wrap_socket(
            self._server.socket,
            server_side=True,
            do_handshake_on_connect=False,  # in the connection's own thread, at its first read
        )
        threading.Thread(
            target=self._server.serve_forever, args=(_POLL_SECONDS,), name="logs", daemon=True
        ).start()

    @property
    def port(self) -> int:
        return self._server.server_port

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """One line for a client that shows no valid certificate or goes away; else all of it."""
        error = sys.exc_info()[1]
        expected = isinstance(error, OSError)  # ssl.SSLError is one
        log.warning("logs, client %s: %s", client_address, error, exc_info=not expected)


class _Handler(http.server.BaseHTTPRequestHandler):
    """Answers in HTTP/1.0: a log ends where the connection does."""

    timeout = _CONNECTION_TIMEOUT_SECONDS
    find_log: FindLog

    def do_GET(self) -> None:
        address = urllib.parse.urlsplit(self.path)
        options = {k: v[-1] for k, v in urllib.parse.parse_qs(address.query).items()}
        match address.path.strip("/").split("/"):
            case ["containerLogs", namespace, pod, container]:
                found = self.find_log(namespace, pod, container)
            case _:
                found = None
        if found is None:
            self.send_error(404, f"no log at {address.path}")
        elif unknown := sorted(set(options) - _SUPPORTED):
            self.send_error(400, f"{', '.join(unknown)} not supported by ProcessNode's logs")
        else:
            self._answer(found, options)

    def _answer(self, log: ContainerLog, options: dict[str, str]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.end_headers()
        try:
            for chunk in read_log(log, options):
                self.wfile.write(chunk)
                self.wfile.flush()
        except (BrokenPipeError, ConnectionResetError, ssl.SSLError):
            return  # the reader has seen enough

    def log_message(self, format: str, *args: object) -> None:
        """Requests are not logged."""


def read_log(log: ContainerLog, options: dict[str, str]) -> Iterator[bytes]:
    """The log in pieces, as tailLines, limitBytes and follow of the request ask for."""
    limit = int(options.get("limitBytes", -1))
    with log.path.open("rb") as file:
        data = file.read()
        if "tailLines" in options:
            lines = data.splitlines(keepends=True)
            data = b"".join(lines[max(len(lines) - int(options["tailLines"]), 0) :])
        yield data if limit < 0 else data[:limit]
        if options.get("follow") != "true" or limit >= 0:
            return
        growing = True
        while growing:
            growing = log.growing()  # asked before reading: the last words count too
            data = file.read()
            if data:
                yield data
            else:
                time.sleep(_FOLLOW_SECONDS)


def _tls_context(address: str, ca_file: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cafile=str(ca_file))
    with tempfile.TemporaryDirectory(prefix="process-node-tls-") as scratch:  # mode 0700
        file = Path(scratch) / "serving.pem"
        file.write_bytes(_self_signed(address))
        context.load_cert_chain(file)
    return context


def _self_signed(name: str) -> bytes:
    """A key and a certificate for it, in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + _CERTIFICATE_LIFE)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return private + certificate.public_bytes(serialization.Encoding.PEM)
