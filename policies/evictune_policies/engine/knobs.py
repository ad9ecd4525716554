"""The knob document: what it says, when it is refused, and how long it holds.

Pure: no file, no clock, no vLLM. The document is JSON::

    {"schema": "evictune.io/knobs/v1",
     "revision": 7,
     "expires": "2026-11-29T12:00:00Z",
     "default": {"policy": "t-lru", "xiTokens": 512, "qHatTokens": 200},
     "pods": {"chat-8b-0": {"policy": "lru"}}}

It is valid or refused as a whole, entries of other pods included, so that all engines that read
the same document agree on it. Fields it does not know are ignored: a newer operator may send them.
"""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NoReturn, TypeGuard

SCHEMA = "evictune.io/knobs/v1"
MAX_TOKENS = 10_000_000
MAX_BYTES = 1 << 20

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
class Document:
    """A valid knob document, reduced to one pod.

    Attributes:
        revision: The number that engines acknowledge.
        expires: Seconds since the epoch; from then on stock LRU is to be in force.
    """

    revision: int
    expires: float
    knobs: Knobs


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
    default = _knobs("default", document.get("default"))
    pods = document.get("pods", {})
    if not isinstance(pods, dict):
        _malformed("pods", pods, "an object keyed by pod name")
    overrides = {name: _knobs(f"pods.{name}", value) for name, value in pods.items()}
    return Document(revision, expires, overrides.get(pod, default))


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
