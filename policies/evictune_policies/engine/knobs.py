"""The knob document: what it says, when it is refused, and how long it holds.

Pure: no file, no clock, no vLLM. The document is JSON::

    {"schema": "evictune.io/knobs/v1",
     "revision": 7,
     "expires": "2026-11-29T12:00:00Z",
     "default": {"policy": "t-lru", "xiTokens": 512, "qHatTokens": 200},
     "pods": {"chat-8b-0": {"policy": "lru", "gpuMemoryUtilization": 0.9,
                            "restart": "d-17", "drainSeconds": 60}}}

It is valid or refused as a whole, entries of other pods included, so that all engines that read
the same document agree on it. Fields it does not know are ignored: a newer operator may send them.
"""

import json
import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NoReturn, TypeGuard

SCHEMA = "evictune.io/knobs/v1"
MAX_TOKENS = 10_000_000
MAX_BYTES = 1 << 20
# Whatever a document says: less than this starts no engine, more leaves nothing to its neighbours.
MIN_FRACTION, MAX_FRACTION = 0.05, 0.97
DRAIN_SECONDS, MAX_DRAIN_SECONDS = 120.0, 3600
_TOKEN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")

Policy = Literal["lru", "t-lru"]


class DocumentRefusedError(ValueError):
    """The document is not taken over; what was in force stays.

    Attributes:
        reason: One CamelCase word, a label value of ``evictune_refused_documents_total``.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Knobs:
    """What one engine is to do. ``xi_tokens`` and ``q_hat_tokens`` are None under ``lru``."""

    policy: Policy = "lru"
    xi_tokens: int | None = None
    q_hat_tokens: int | None = None


STOCK = Knobs()


@dataclass(frozen=True, slots=True)
class Memory:
    """What one pod's next start is to take, and whether it is to come about now.

    Attributes:
        fraction: gpu_memory_utilization of the next start; None: as the manifest has it.
        restart: A word that asks for one restart, ever; None: nothing is asked.
        drain_seconds: How long requests in flight may hold a restart up.
    """

    fraction: float | None = None
    restart: str | None = None
    drain_seconds: float = DRAIN_SECONDS


@dataclass(frozen=True, slots=True)
class Document:
    """A valid knob document, reduced to one pod.

    Attributes:
        revision: The number that engines acknowledge.
        expires: Seconds since the epoch; from then on stock LRU is to be in force.
    """

    revision: int
    expires: float
    knobs: Knobs
    memory: Memory = Memory()


def parse(text: bytes, pod: str) -> Document:
    """Read a knob document as the given pod is to understand it.

    Raises:
        DocumentRefusedError: With reason ``Malformed``, ``Foreign``, ``UnknownPolicy`` or
            ``OutOfRange``; the message names field and value.
    """
    document = _load(text)
    schema = document.get("schema")
    if schema != SCHEMA:
        raise DocumentRefusedError("Foreign", f"schema is {_short(schema)}, want {SCHEMA!r}")
    revision = document.get("revision")
    if not _is_integer(revision) or revision < 1:
        _malformed("revision", revision, "an integer of at least 1")
    expires = _timestamp(document.get("expires"))
    default = document.get("default")
    entry = _knobs("default", default), _memory("default", default)
    if entry[1].restart is not None:
        _malformed("default.restart", entry[1].restart, "it under pods: one pod at a time restarts")
    pods = document.get("pods", {})
    if not isinstance(pods, dict):
        _malformed("pods", pods, "an object keyed by pod name")
    for name, value in pods.items():
        own = _knobs(f"pods.{name}", value), _memory(f"pods.{name}", value)
        entry = own if name == pod else entry
    return Document(revision, expires, *entry)


def _load(text: bytes) -> dict[str, Any]:
    """Decode the JSON object, whatever the bytes are."""
    if len(text) > MAX_BYTES:
        raise DocumentRefusedError("Malformed", f"longer than {MAX_BYTES} bytes")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DocumentRefusedError("Malformed", f"not JSON: {error}") from error
    if not isinstance(document, dict):
        raise DocumentRefusedError("Malformed", f"is {_short(document)}, want an object")
    return document


def _knobs(field: str, value: object) -> Knobs:
    if not isinstance(value, dict):
        _malformed(field, value, 'an object such as {"policy": "lru"}')
    policy = value.get("policy")
    if policy == "lru":
        for name in ("xiTokens", "qHatTokens"):
            if name in value:
                _malformed(f"{field}.{name}", value[name], 'no such field with policy "lru"')
        return STOCK
    if policy == "t-lru":
        xi, q_hat = (_tokens(field, name, value.get(name)) for name in ("xiTokens", "qHatTokens"))
        return Knobs("t-lru", xi, q_hat)
    if not isinstance(policy, str):
        _malformed(f"{field}.policy", policy, '"lru" or "t-lru"')
    raise DocumentRefusedError(
        "UnknownPolicy", f'{field}.policy is {_short(policy)}, want "lru" or "t-lru"'
    )


def _tokens(parent: str, name: str, value: object) -> int:
    field = f"{parent}.{name}"
    if not _is_integer(value):
        _malformed(field, value, "an integer number of tokens")
    if not 0 <= value <= MAX_TOKENS:
        raise DocumentRefusedError(
            "OutOfRange", f"{field} is {_short(value)}, want 0 to {MAX_TOKENS} tokens"
        )
    return value


def _memory(field: str, entry: Any) -> Memory:
    """Of an entry that is an object, which the knobs have made sure of."""
    fraction = _number(
        f"{field}.gpuMemoryUtilization", entry.get("gpuMemoryUtilization"),
        "a share of the memory such as 0.9", MIN_FRACTION, MAX_FRACTION,
    )  # fmt: skip
    drain = _number(
        f"{field}.drainSeconds", entry.get("drainSeconds"),
        "a number of seconds such as 120", 0, MAX_DRAIN_SECONDS,
    )  # fmt: skip
    restart = entry.get("restart")
    if restart is not None and not (isinstance(restart, str) and _TOKEN.fullmatch(restart)):
        _malformed(f"{field}.restart", restart, "1 to 63 letters, digits, dots, dashes")
    return Memory(fraction, restart, DRAIN_SECONDS if drain is None else drain)


def _number(field: str, value: object, wanted: str, low: float, high: float) -> float | None:
    """A number in its bounds, or None for none."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        _malformed(field, value, wanted)
    if not low <= value <= high:  # nor is it NaN
        raise DocumentRefusedError(
            "OutOfRange", f"{field} is {_short(value)}, want {low} to {high}: {wanted}"
        )
    return float(value)


def _timestamp(value: object) -> float:
    wanted = "an RFC 3339 time such as 2026-11-29T12:00:00Z"
    if not isinstance(value, str):
        _malformed("expires", value, wanted)
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        _malformed("expires", value, wanted)
    if moment.tzinfo is None:
        _malformed("expires", value, wanted)
    return moment.timestamp()


def _is_integer(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _malformed(field: str, value: object, wanted: str) -> NoReturn:
    raise DocumentRefusedError("Malformed", f"{field} is {_short(value)}, want {wanted}")


def _short(value: object) -> str:
    text = "missing" if value is None else repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
