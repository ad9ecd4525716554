"""Whatever stands in the knob file: knobs in range, or a refusal; never another error."""

from __future__ import annotations

import json
from pathlib import Path

from evictune_policies.engine.knobs import (
    MAX_DRAIN_SECONDS,
    MAX_FRACTION,
    MAX_TOKENS,
    MIN_FRACTION,
    Document,
    DocumentRefusedError,
    parse,
)
from evictune_policies.engine.source import FILE_NAME, KnobSource, Wanted
from hypothesis import given
from hypothesis import strategies as st

leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12)
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["policy", "xiTokens", "qHatTokens", "p"]), inner)
    ),
    max_leaves=8,
)
tokens = st.integers(-2, MAX_TOKENS + 2) | leaves
knobs = st.fixed_dictionaries(
    {},
    optional={
        "policy": st.sampled_from(["lru", "t-lru"]) | leaves,
        "xiTokens": tokens,
        "qHatTokens": tokens,
        "gpuMemoryUtilization": st.floats() | leaves,
        "restart": st.text(max_size=3) | leaves,
        "drainSeconds": st.floats() | leaves,
    },
)
documents = st.fixed_dictionaries(
    {"schema": st.just("evictune.io/knobs/v1") | leaves},
    optional={
        "revision": st.integers(-1, 9) | values,
        "expires": st.datetimes().map(lambda moment: f"{moment.isoformat()}Z") | values,
        "default": knobs | values,
        "pods": st.dictionaries(st.sampled_from(["p", "q"]), knobs) | values,
    },
)


def _is_valid_or_refused(text: bytes) -> None:
    try:
        document = parse(text, "p")
    except DocumentRefusedError as refusal:
        refused = refusal
    else:
        _is_valid(document)
        return
    assert refused.reason
    assert str(refused)


def _is_valid(document: Document) -> None:
    assert document.revision >= 1
    for count in (document.knobs.xi_tokens, document.knobs.q_hat_tokens):
        assert (count is None) == (document.knobs.policy == "lru")
        assert count is None or 0 <= count <= MAX_TOKENS
    memory = document.memory
    assert memory.fraction is None or MIN_FRACTION <= memory.fraction <= MAX_FRACTION
    assert memory.restart is None or memory.restart
    assert 0 <= memory.drain_seconds <= MAX_DRAIN_SECONDS


@given(documents)
def test_any_document(document: object) -> None:
    _is_valid_or_refused(json.dumps(document).encode())


@given(st.binary(max_size=60))
def test_any_bytes(text: bytes) -> None:
    _is_valid_or_refused(text)


@given(texts=st.lists(st.none() | st.binary(max_size=40) | documents, max_size=6))
def test_any_succession_of_files(tmp_path_factory: object, texts: list[object]) -> None:
    directory: Path = tmp_path_factory.mktemp("knobs")  # type: ignore[attr-defined]
    source = KnobSource(directory, "p")
    file = directory / FILE_NAME
    for text in texts:
        if text is None:
            file.unlink(missing_ok=True)
        else:
            new = directory / "new"
            new.write_bytes(text if isinstance(text, bytes) else json.dumps(text).encode())
            new.replace(file)
        wanted = source.poll(now=0.0)
        if text is None:
            assert wanted == Wanted()
            assert source.refusal is None
