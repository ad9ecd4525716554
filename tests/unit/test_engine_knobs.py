"""The knob document: taken over whole, or refused with a reason and a sentence that helps."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from evictune_policies.engine.knobs import (
    MAX_BYTES,
    MAX_FRACTION,
    MAX_TOKENS,
    MIN_FRACTION,
    DocumentRefusedError,
    Knobs,
    Memory,
    parse,
)

EXPIRES = "2026-11-29T12:00:00Z"
TLRU = {"policy": "t-lru", "xiTokens": 512, "qHatTokens": 200}


def document(**changes: Any) -> bytes:
    """A valid document with some fields changed; None removes one."""
    fields = {
        "schema": "evictune.io/knobs/v1",
        "revision": 7,
        "expires": EXPIRES,
        "default": TLRU,
        **changes,
    }
    return json.dumps({k: v for k, v in fields.items() if v is not None}).encode()


def test_default_applies_to_a_pod_without_its_own_entry() -> None:
    read = parse(document(pods={"other": {"policy": "lru"}}), "chat-0")
    assert read.knobs == Knobs("t-lru", 512, 200)
    assert read.revision == 7
    assert read.expires == datetime(2026, 11, 29, 12, tzinfo=UTC).timestamp()


def test_own_entry_replaces_the_default_whole() -> None:
    pods = {"chat-0": {"policy": "t-lru", "xiTokens": 0, "qHatTokens": MAX_TOKENS}}
    assert parse(document(pods=pods), "chat-0").knobs == Knobs("t-lru", 0, MAX_TOKENS)
    assert parse(document(pods={"chat-0": {"policy": "lru"}}), "chat-0").knobs == Knobs()


def test_unknown_fields_are_left_to_newer_readers() -> None:
    assert parse(document(decision="d-17", default={**TLRU, "later": 1}), "p").revision == 7


def test_the_own_entry_says_what_memory_and_which_restart() -> None:
    default = {**TLRU, "gpuMemoryUtilization": 0.9}
    own = {"policy": "lru", "gpuMemoryUtilization": 0.85, "restart": "d-17.a", "drainSeconds": 9}
    text = document(default=default, pods={"chat-0": own, "chat-1": {"policy": "lru"}})
    assert parse(text, "chat-0").memory == Memory(0.85, "d-17.a", 9.0)
    assert parse(text, "chat-1").memory == Memory(None, None)
    assert parse(text, "chat-2").memory == Memory(0.9, None)


@pytest.mark.parametrize("fraction", [MIN_FRACTION, MAX_FRACTION])
def test_the_bounds_of_the_fraction_belong_to_it(fraction: float) -> None:
    default = {**TLRU, "gpuMemoryUtilization": fraction}
    assert parse(document(default=default), "p").memory.fraction == fraction


@pytest.mark.parametrize("expires", ["2026-11-29T13:00:00+01:00", "2026-11-29T12:00:00.000Z"])
def test_any_rfc_3339_spelling_of_a_moment(expires: str) -> None:
    assert parse(document(expires=expires), "p").expires == parse(document(), "p").expires


REFUSED = {
    "not JSON": (b'{"schema":', "Malformed", "not JSON"),
    "no text at all": (b"", "Malformed", "not JSON"),
    "not UTF-8": (b"\xff\xfe\x00", "Malformed", "not JSON"),
    "nested without end": (b"[" * 200_000, "Malformed", "not JSON"),
    "a list": (b"[]", "Malformed", "want an object"),
    "too long": (b" " * (MAX_BYTES + 1), "Malformed", "longer than"),
    "another's schema": (document(schema="someone.else/v1"), "Foreign", "'someone.else/v1'"),
    "a later schema": (document(schema="evictune.io/knobs/v2"), "Foreign", "knobs/v2"),
    "no schema": (document(schema=None), "Foreign", "missing"),
    "revision 0": (document(revision=0), "Malformed", "revision is 0"),
    "revision true": (document(revision=True), "Malformed", "revision is True"),
    "revision a string": (document(revision="7"), "Malformed", "revision is '7'"),
    "no expiry": (document(expires=None), "Malformed", "expires is missing"),
    "expiry without zone": (document(expires="2026-11-29T12:00:00"), "Malformed", "RFC 3339"),
    "expiry a number": (document(expires=1), "Malformed", "RFC 3339"),
    "expiry not a time": (document(expires="soon"), "Malformed", "'soon'"),
    "no default": (document(default=None), "Malformed", "default is missing"),
    "xi without policy": (
        document(default={"xiTokens": 5, "qHatTokens": 5}), "Malformed", "default.policy",
    ),
    "lru with xi": (
        document(default={"policy": "lru", "xiTokens": 5}), "Malformed", "default.xiTokens is 5",
    ),
    "unknown policy": (document(default={"policy": "belady"}), "UnknownPolicy", "'belady'"),
    "no xi": (document(default={"policy": "t-lru", "qHatTokens": 5}), "Malformed", "xiTokens"),
    "xi a fraction": (document(default={**TLRU, "xiTokens": 512.5}), "Malformed", "512.5"),
    "xi negative": (document(default={**TLRU, "xiTokens": -1}), "OutOfRange", "xiTokens is -1"),
    "xi too large": (
        document(default={**TLRU, "xiTokens": MAX_TOKENS + 1}), "OutOfRange", "10000001",
    ),
    "q_hat too large": (
        document(default={**TLRU, "qHatTokens": 10**30}), "OutOfRange", "qHatTokens",
    ),
    "another pod's entry": (
        document(pods={"other": {"policy": "t-lru"}}), "Malformed", "pods.other.xiTokens",
    ),
    "pods a list": (document(pods=["p"]), "Malformed", "pods is"),
    "a fraction as text": (
        document(default={**TLRU, "gpuMemoryUtilization": "0.9"}),
        "Malformed", "default.gpuMemoryUtilization is '0.9', want a share of the memory",
    ),
    "a fraction true": (
        document(default={**TLRU, "gpuMemoryUtilization": True}), "Malformed", "is True",
    ),
    "a fraction in percent": (
        document(default={**TLRU, "gpuMemoryUtilization": 90}),
        "OutOfRange", "default.gpuMemoryUtilization is 90, want 0.05 to 0.97",
    ),
    "a fraction too low": (
        document(pods={"p": {**TLRU, "gpuMemoryUtilization": 0.049}}),
        "OutOfRange", "pods.p.gpuMemoryUtilization is 0.049",
    ),
    "a fraction that is no number": (
        document(default={**TLRU, "gpuMemoryUtilization": float("nan")}), "OutOfRange", "is nan",
    ),
    "a restart of all": (
        document(default={**TLRU, "restart": "d-1"}), "Malformed", "one pod at a time",
    ),
    "a restart without a word": (
        document(pods={"p": {**TLRU, "restart": ""}}), "Malformed", "pods.p.restart is ''",
    ),
    "a restart by number": (document(pods={"p": {**TLRU, "restart": 7}}), "Malformed", "is 7"),
    "a restart that never ends": (
        document(pods={"p": {**TLRU, "drainSeconds": 1e9}}),
        "OutOfRange", "pods.p.drainSeconds is 1000000000.0, want 0 to 3600",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "reason", "says"), REFUSED.values(), ids=REFUSED.keys())
def test_refused_with_a_reason_and_the_field(text: bytes, reason: str, says: str) -> None:
    with pytest.raises(DocumentRefusedError) as caught:
        parse(text, "chat-0")
    assert caught.value.reason == reason
    assert says in str(caught.value)
    assert len(str(caught.value)) < 250
