"""The model that the demonstration writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from demo.constants import ModelSize
from demo.model import cached_model, write_model

SMALL = ModelSize(layers=2, hidden=16, intermediate=24, heads=2, head=8, vocabulary=40)


def test_it_is_a_llama_of_the_size_asked_for(tmp_path: Path) -> None:
    write_model(tmp_path, SMALL)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"]
    weights = load_file(tmp_path / "model.safetensors")
    assert len(weights) == 3 + SMALL.layers * 9
    assert weights["model.embed_tokens.weight"].shape == (40, 16)
    assert weights["model.layers.1.mlp.down_proj.weight"].shape == (16, 24)


def test_a_word_is_a_token(tmp_path: Path) -> None:
    write_model(tmp_path, SMALL)
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert tokenizer.encode("w3 w39 nonsense").ids == [3, 39, 2]
    assert tokenizer.get_vocab_size() == SMALL.vocabulary


def test_the_same_size_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "other"):
        write_model(tmp_path / name, SMALL)
    one, other = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "other"))
    assert one == other


def test_it_is_written_once_and_leaves_nothing_half_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = cached_model(SMALL)
    written = (first / "model.safetensors").stat().st_mtime_ns
    assert cached_model(SMALL) == first
    assert (first / "model.safetensors").stat().st_mtime_ns == written
    assert list((tmp_path / "evictune").iterdir()) == [first]
    assert cached_model(ModelSize(layers=1, hidden=16, heads=2, head=8)) != first
