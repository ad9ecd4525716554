"""HTTP to addresses that mean something on this machine only: no proxy of the environment's."""

from __future__ import annotations

import ssl
import urllib.request
from typing import Any

SECONDS = 10.0


def opened(request: str | urllib.request.Request, tls: ssl.SSLContext | None = None) -> Any:
    """The answer, open. Raises OSError."""
    no_proxy, https = urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=tls)
    opener = urllib.request.build_opener(no_proxy, https)
    return opener.open(request, timeout=SECONDS)


def answers(url: str) -> bool:
    """Whether there is an answer, and all is well."""
    try:
        with opened(url) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
