"""Log lines: JSON for machines, text for terminals; `extra={"fields": ...}` adds fields."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

from evictune.api.times import format_time

_TEXT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


def about(namespace: str, policy: str, **more: Any) -> dict[str, Any]:
    """`extra` of a log call about a policy: every such line is found by the same two fields."""
    return {"fields": {"namespace": namespace, "policy": policy, **more}}


class JSONFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        line: dict[str, Any] = {
            "time": format_time(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update(getattr(record, "fields", {}))
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class TextFormatter(logging.Formatter):
    """The message, then the structured fields."""

    def __init__(self) -> None:
        super().__init__(_TEXT)

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        fields: dict[str, Any] = getattr(record, "fields", {})
        told = " ".join(f"{key}={_short(value)}" for key, value in fields.items() if value)
        return f"{super().format(record)}{'  ' + told if told else ''}"


def _short(value: object) -> str:
    """A word as it is; anything else as JSON without spaces, so that a field is one word."""
    if isinstance(value, str) and not set(value) & set(' "='):
        return value
    return json.dumps(value, default=str, separators=(",", ":"))


def set_up_logging(log_format: str, *, verbose: bool = False) -> None:
    """Log to standard error. `log_format`: "json" or "text"."""
    handler = logging.StreamHandler(sys.stderr)
    if not verbose:
        handler.addFilter(_without_kopfs_traceback)
    handler.setFormatter(JSONFormatter() if log_format == "json" else TextFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    if verbose:
        logging.getLogger("evictune").setLevel(logging.DEBUG)
    # Kopf tells of every event of the watch; the transitions are told by us.
    logging.getLogger("kopf.objects").setLevel(logging.WARNING)
    # That it logs in, each time, by names of our functions.
    for name in ("kopf.activities", "kopf._core.engines.activities"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # Several lines for each renewal of the lease; what matters is told by us.
    logging.getLogger("leaderelection").setLevel(logging.WARNING)
    # That it runs in a thread, and so leaves signals to us.
    logging.getLogger("kopf._core.reactor.running").setLevel(logging.ERROR)
    # One line for each probe of the kubelet.
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)


def _without_kopfs_traceback(record: logging.LogRecord) -> bool:
    """What the API server answers to Kopf is told in a line."""
    if record.name.startswith("kopf.") and record.exc_info:
        record.exc_info = record.exc_text = None
    return True
