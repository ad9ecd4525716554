"""An HTTP server for clients that are killed, or hang up, while they are being answered."""

from __future__ import annotations

import ssl
import sys
from http.server import ThreadingHTTPServer
from typing import Any


class Server(ThreadingHTTPServer):
    """One thread a connection; none keeps the process alive."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Tell of everything but a client that is gone or wants no TLS like this: it knows best."""
        if not isinstance(sys.exception(), ConnectionError | ssl.SSLError):
            super().handle_error(request, client_address)
