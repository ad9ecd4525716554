"""Every policy by name: what it is, where it comes from, how its state is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evictune_policies.algorithms.lru import new_lru
from evictune_policies.algorithms.prefix_lru import new_prefix_lru
from evictune_policies.algorithms.t_lru import TLRU, new_t_lru
from evictune_policies.algorithms.time_to_live import new_time_to_live


@dataclass(frozen=True)
class Cost:
    """Seconds of a prefill: linear * n + quadratic * n * (n + 2 * cached) / 2 for n new tokens."""

    linear: float = 1.0
    quadratic: float = 0.0


@dataclass(frozen=True)
class Chains:
    """The requests' chains: contents[starts[r]:starts[r + 1]] are those of request r, whole blocks.

    parent, depth: per content, as in `pool.Pool`. prompt_tokens, tokens: per request, int64;
    tokens is the prompt and the output. final: per request, whether its conversation ended with it.
    """

    starts: NDArray[np.int64]
    contents: NDArray[np.int32]
    parent: NDArray[np.int32]
    depth: NDArray[np.int32]
    prompt_tokens: NDArray[np.int64]
    tokens: NDArray[np.int64]
    final: NDArray[np.bool_]


@dataclass(frozen=True)
class Setting:
    """What a policy may be built from. Only offline policies may look into `chains`' future.

    max_model_tokens: the longest request that the model takes; None: as long as the pool, because
    an engine refuses to start with a pool that is smaller.
    """

    capacity_blocks: int
    block_tokens: int
    chains: Chains
    xi_tokens: int = 0
    q_hat_tokens: int = 0
    cost: Cost = Cost()
    max_model_tokens: int | None = None


@dataclass(frozen=True)
class Policy:
    """One eviction policy.

    source: the paper and section, or the pull request, that defines it.
    parameters: which of a Setting's knobs it depends on.
    suffix_first: whether a request frees its last block first, as vLLM does.
    offline: it knows the requests to come: a yardstick, nothing that can be run.
    """

    name: str
    summary: str
    source: str
    build: Callable[[Setting], Any]
    parameters: tuple[str, ...] = ()
    suffix_first: bool = True
    offline: bool = False


PAPER = "Tail-Optimized Caching for LLM Inference, https://arxiv.org/abs/2510.15152"


def _t_lru(setting: Setting) -> TLRU:
    longest = setting.max_model_tokens
    if longest is None:
        longest = setting.capacity_blocks * setting.block_tokens
    return new_t_lru(
        setting.capacity_blocks,
        setting.block_tokens,
        setting.xi_tokens,
        setting.q_hat_tokens,
        longest,
    )


_ALL = (
    Policy(
        name="lru",
        summary="textbook LRU: blocks on their own, a request's first block before its last",
        source="Mattson et al., Evaluation techniques for storage hierarchies, 1970",
        build=lambda setting: new_lru(setting.capacity_blocks),
        suffix_first=False,
    ),
    Policy(
        name="prefix-lru",
        summary="vLLM's own: least recently freed first, a request's last block before its first",
        source="vLLM, v1/core/kv_cache_utils.py, FreeKVCacheBlockQueue",
        build=lambda setting: new_prefix_lru(setting.capacity_blocks),
    ),
    Policy(
        name="t-lru",
        summary="LRU, but blocks that cannot make the next turn exceed xi are evicted first",
        source=f"{PAPER}, section 3, policy 1; vLLM RFC #37823",
        build=_t_lru,
        parameters=("xi_tokens", "q_hat_tokens"),
    ),
    Policy(
        name="ttl-5m",
        summary="prefix-lru, and what was not used for five minutes is gone",
        source="Anthropic API, prompt caching, cache lifetime",
        build=lambda setting: new_time_to_live(setting.capacity_blocks, 300.0),
    ),
    Policy(
        name="ttl-1h",
        summary="prefix-lru, and what was not used for an hour is gone",
        source="Anthropic API, prompt caching, 1-hour cache duration",
        build=lambda setting: new_time_to_live(setting.capacity_blocks, 3600.0),
    ),
)
POLICIES = {policy.name: policy for policy in _ALL}
