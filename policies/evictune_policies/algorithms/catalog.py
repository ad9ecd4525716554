"""Every policy by name: what it is, where it comes from, how its state is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evictune_policies.algorithms.belady import new_belady
from evictune_policies.algorithms.end_aware_t_lru import new_end_aware_t_lru
from evictune_policies.algorithms.et_lru import new_et_lru
from evictune_policies.algorithms.frequency_cost import new_frequency_cost
from evictune_policies.algorithms.gdsf import new_gdsf
from evictune_policies.algorithms.greedy_dual_size import new_greedy_dual_size
from evictune_policies.algorithms.infinite import room_for_everything
from evictune_policies.algorithms.length_aware_t_lru import new_length_aware_t_lru
from evictune_policies.algorithms.lfu import new_lfu
from evictune_policies.algorithms.lfu_aging import new_lfu_aging
from evictune_policies.algorithms.lru import new_lru
from evictune_policies.algorithms.pgdsf import new_pgdsf
from evictune_policies.algorithms.prefill import Prefill
from evictune_policies.algorithms.prefix_lru import new_prefix_lru
from evictune_policies.algorithms.radix_lru import new_radix_lru
from evictune_policies.algorithms.s3_fifo import new_s3_fifo
from evictune_policies.algorithms.sieve import new_sieve
from evictune_policies.algorithms.t_lru import TLRU, new_t_lru
from evictune_policies.algorithms.tail_belady import new_tail_belady
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
    needs_blocks: the capacity to build and replay it with, whatever the setting's is; None: that.
    """

    name: str
    summary: str
    source: str
    build: Callable[[Setting], Any]
    parameters: tuple[str, ...] = ()
    suffix_first: bool = True
    offline: bool = False
    needs_blocks: Callable[[Setting], int] | None = None


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


def _prefill(setting: Setting) -> Prefill:
    return Prefill(setting.cost.linear, setting.cost.quadratic, setting.block_tokens)


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
        name="radix-lru",
        summary="SGLang's: the least recently used leaf of the radix tree is dropped whole",
        source="SGLang, mem_cache/radix_cache.py; arXiv 2312.07104, section 3",
        build=lambda setting: new_radix_lru(
            setting.capacity_blocks, setting.chains.prompt_tokens // setting.block_tokens
        ),
    ),
    Policy(
        name="lfu",
        summary="least frequently used first, counted while a block is cached",
        source="libCacheSim, LFU.c; Breslau et al., INFOCOM 1999",
        build=lambda setting: new_lfu(setting.capacity_blocks),
    ),
    Policy(
        name="lfu-aging",
        summary="LFU whose old counts lose weight with every eviction",
        source="LFU-DA; Arlitt et al., 2000",
        build=lambda setting: new_lfu_aging(setting.capacity_blocks),
    ),
    Policy(
        name="frequency-cost",
        summary="hits per second times the square of the prefix's length, least first",
        source="vLLM issue #23641, pull request #27539",
        build=lambda setting: new_frequency_cost(setting.capacity_blocks, setting.block_tokens),
    ),
    Policy(
        name="greedy-dual-size",
        summary="cheapest to compute again first; what stays unused ages",
        source="Cao and Irani, USITS 1997",
        build=lambda setting: new_greedy_dual_size(setting.capacity_blocks, _prefill(setting)),
        parameters=("cost",),
    ),
    Policy(
        name="gdsf",
        summary="GreedyDual-Size times frequency",
        source="Cherkasova, HPL-98-69, 1998",
        build=lambda setting: new_gdsf(setting.capacity_blocks, _prefill(setting)),
        parameters=("cost",),
    ),
    Policy(
        name="pgdsf",
        summary="GDSF by the cost per token of the requests that had to compute a prefix",
        source="RAGCache, arXiv 2404.12457, section 5.1",
        build=lambda setting: new_pgdsf(
            setting.capacity_blocks,
            _prefill(setting),
            contents=len(setting.chains.parent),
            requests=len(setting.chains.tokens),
        ),
        parameters=("cost",),
    ),
    Policy(
        name="t-lru",
        summary="LRU, but blocks that cannot make the next turn exceed xi are evicted first",
        source=f"{PAPER}, section 3, policy 1; vLLM RFC #37823",
        build=_t_lru,
        parameters=("xi_tokens", "q_hat_tokens"),
    ),
    Policy(
        name="et-lru",
        summary="least expected cost to the tail first: silence and length weighed",
        source=f"{PAPER}, section 4, definition 1",
        build=lambda setting: new_et_lru(
            setting.capacity_blocks,
            setting.block_tokens,
            setting.xi_tokens,
            setting.q_hat_tokens,
            contents=len(setting.chains.parent),
        ),
        parameters=("xi_tokens", "q_hat_tokens"),
    ),
    Policy(
        name="end-aware-t-lru",
        summary="offline: t-lru that is told which conversations have ended",
        source=f"{PAPER}, appendix G.1",
        build=new_end_aware_t_lru,
        parameters=("xi_tokens", "q_hat_tokens"),
        offline=True,
    ),
    Policy(
        name="length-aware-t-lru",
        summary="offline: t-lru that is told each conversation's next prompt length, or its end",
        source=f"{PAPER}, appendix G.1",
        build=new_length_aware_t_lru,
        parameters=("xi_tokens",),
        offline=True,
    ),
    Policy(
        name="s3-fifo",
        summary="three FIFO queues: what was used once leaves early, what was used twice stays",
        source="Yang et al., SOSP 2023; libCacheSim, S3FIFO.c",
        build=lambda setting: new_s3_fifo(
            setting.capacity_blocks, contents=len(setting.chains.parent)
        ),
    ),
    Policy(
        name="sieve",
        summary="one FIFO queue and a hand that spares what was hit since it last came by",
        source="Zhang et al., NSDI 2024; libCacheSim, Sieve.c",
        build=lambda setting: new_sieve(setting.capacity_blocks),
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
    Policy(
        name="belady",
        summary="offline: the block whose next use is furthest away first; the most hits there are",
        source="L. A. Belady, IBM Systems Journal 5, 1966, on prefixes",
        build=new_belady,
        offline=True,
    ),
    Policy(
        name="tail-belady",
        summary="offline: Belady where only hits count that lower what is above xi; the least TEL",
        source=f"{PAPER}, theorem 1 and appendix D",
        build=new_tail_belady,
        parameters=("xi_tokens",),
        offline=True,
    ),
    Policy(
        name="infinite",
        summary="offline: a pool with room for everything; the floor of every request",
        source="compulsory misses: Hill and Smith, IEEE Transactions on Computers 38, 1989",
        build=new_belady,
        offline=True,
        needs_blocks=room_for_everything,
    ),
)
POLICIES = {policy.name: policy for policy in _ALL}
