"""HTTP to addresses that mean something on this machine only: no proxy of the environment's."""

from __future__ import annotations

import urllib.request
from typing import Any

SECONDS = 10.0


def opened(request: str | urllib.request.Request) -> Any:
    """The answer, open. Raises OSError."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    return opener.open(request, timeout=SECONDS)


def answers(url: str) -> bool:
    """Whether there is an answer, and all is well."""
    try:
        with opened(url) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
