"""Every policy by name: what it is, where it comes from, how its state is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evictune_policies.algorithms.prefix_lru import new_prefix_lru


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
    """What a policy may be built from. Only offline policies may look into `chains`' future."""

    capacity_blocks: int
    block_tokens: int
    chains: Chains
    xi_tokens: int = 0
    q_hat_tokens: int = 0
    cost: Cost = Cost()


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


_ALL = (
    Policy(
        name="prefix-lru",
        summary="vLLM's own: least recently freed first, a request's last block before its first",
        source="vLLM, v1/core/kv_cache_utils.py, FreeKVCacheBlockQueue",
        build=lambda setting: new_prefix_lru(setting.capacity_blocks),
    ),
)
POLICIES = {policy.name: policy for policy in _ALL}
