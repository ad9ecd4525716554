"""A small random Llama, written locally in seconds: nothing is downloaded.

The answers are nonsense. What the demonstration needs of a model is that prefill costs what
prefill costs and that the KV cache is real.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

from demo.constants import ENGINE, MODEL, ModelSize

BEGIN, END, UNKNOWN = "<s>", "</s>", "<unk>"


def cached_model(size: ModelSize = MODEL) -> Path:
    """The model's directory in the user's cache, written on first use (atomically)."""
    key = hashlib.sha256(json.dumps(asdict(size), sort_keys=True).encode()).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "evictune"
    directory = cache / f"demo-model-{key}"
    if not directory.exists():
        cache.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f"{directory.name}-", dir=cache))
        write_model(partial, size)
        try:
            partial.rename(directory)
        except OSError:
            # Another run was faster. Its model is the same: the content follows from the size.
            shutil.rmtree(partial)
    return directory


def write_model(directory: Path, size: ModelSize = MODEL) -> None:
    """Write config, weights (safetensors, float32) and a WordLevel tokenizer to `directory`."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(_config(size), indent=1))
    save_file(dict(_weights(size)), directory / "model.safetensors", metadata={"format": "pt"})
    _tokenizer(size).save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "bos_token": BEGIN,
                "eos_token": END,
                "unk_token": UNKNOWN,
                "model_max_length": ENGINE.max_model_tokens,
            }
        )
    )


def _config(size: ModelSize) -> dict[str, object]:
    """config.json of a Llama, as transformers names the fields."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": size.hidden,
        "intermediate_size": size.intermediate,
        "num_hidden_layers": size.layers,
        "num_attention_heads": size.heads,
        "num_key_value_heads": size.heads,
        "head_dim": size.head,
        "vocab_size": size.vocabulary,
        "max_position_embeddings": ENGINE.max_model_tokens,
        "rms_norm_eps": 1e-5,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
    }


def _weights(size: ModelSize) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Name and value of every parameter; matrices are (outputs, inputs), as torch stores them."""
    generator = np.random.default_rng(size.seed)

    def matrix(outputs: int, inputs: int) -> NDArray[np.float32]:
        scale = np.float32(inputs**-0.5)
        return generator.standard_normal((outputs, inputs), dtype=np.float32) * scale

    ones = np.ones(size.hidden, dtype=np.float32)
    yield "model.embed_tokens.weight", matrix(size.vocabulary, size.hidden)
    for layer in range(size.layers):
        prefix = f"model.layers.{layer}"
        attention = size.heads * size.head
        for name in ("q_proj", "k_proj", "v_proj"):
            yield f"{prefix}.self_attn.{name}.weight", matrix(attention, size.hidden)
        yield f"{prefix}.self_attn.o_proj.weight", matrix(size.hidden, attention)
        for name in ("gate_proj", "up_proj"):
            yield f"{prefix}.mlp.{name}.weight", matrix(size.intermediate, size.hidden)
        yield f"{prefix}.mlp.down_proj.weight", matrix(size.hidden, size.intermediate)
        for name in ("input_layernorm", "post_attention_layernorm"):
            yield f"{prefix}.{name}.weight", ones.copy()
    yield "model.norm.weight", ones
    yield "lm_head.weight", matrix(size.vocabulary, size.hidden)


def _tokenizer(size: ModelSize) -> Tokenizer:
    """Words w3, w4, ... separated by blanks, one token each."""
    words = [BEGIN, END, UNKNOWN]
    words += [f"w{index}" for index in range(len(words), size.vocabulary)]
    tokenizer = Tokenizer(WordLevel({word: i for i, word in enumerate(words)}, UNKNOWN))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    return tokenizer
