"""Real vLLM cache managers and requests, without a model and without a server."""

import itertools
from collections.abc import Sequence

import torch
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.request import Request

init_none_hash(sha256)
_request_numbers = itertools.count()


def cache_config(blocks: int, block_size: int) -> KVCacheConfig:
    """The KV cache of a model with one full-attention group."""
    spec = FullAttentionSpec(
        block_size=block_size, num_kv_heads=1, head_size=1, dtype=torch.float32
    )
    return KVCacheConfig(
        num_blocks=blocks,
        kv_cache_tensors=[],
        kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)],
    )


def cache_manager(blocks: int, block_size: int = 16, max_model_len: int = 16_384) -> KVCacheManager:
    """A stock cache manager with prefix caching and that many blocks beside the null block."""
    return KVCacheManager(
        cache_config(blocks + 1, block_size),
        max_model_len=max_model_len,
        scheduler_block_size=block_size,
        hash_block_size=block_size,
        enable_caching=True,
    )


def make_request(prompt: Sequence[int], block_size: int = 16, max_tokens: int = 16) -> Request:
    """A waiting request for a prompt of token ids, its block hashes computed."""
    parameters = SamplingParams(max_tokens=max_tokens, temperature=0.0)
    parameters.update_from_generation_config({}, eos_token_id=None)
    return Request(
        request_id=f"request-{next(_request_numbers)}",
        prompt_token_ids=list(prompt),
        sampling_params=parameters,
        pooling_params=None,
        block_hasher=get_request_block_hasher(block_size, sha256),
    )
