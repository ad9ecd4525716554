"""What a result is judged by.

xi is a number of uncached prompt tokens that a request may have. The first objective is the number
of requests above it (`violations`), the second by how much they are (`tel`, tail excess latency in
tokens: arXiv 2510.15152, section 3). Quantiles are by nearest rank: values that occurred.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evictune_policies.replay.mechanics import AGE_BOUNDS
from evictune_policies.replay.simulation.result import Int64, Result


def hit_ratio(result: Result) -> float:
    """Blocks found, of all blocks of the prompts, 0..1; a partial last block is one that missed.

    A prompt block that is never looked up (it holds the last token) missed as well. 0 of nothing.
    """
    prompt_blocks = int((-(-result.prompt_tokens // result.block_tokens)).sum())
    hit_blocks = int((result.cached_tokens // result.block_tokens).sum())
    return hit_blocks / prompt_blocks if prompt_blocks else 0.0


def quantile(values: NDArray[Any], q: float) -> Any:
    """The q-quantile by nearest rank; 0 of nothing."""
    if len(values) == 0:
        return values.dtype.type(0)
    rank = max(1, math.ceil(q * len(values) - 1e-9))
    return np.partition(values, rank - 1)[rank - 1]


def uncached_quantile(result: Result, q: float) -> int:
    """The q-quantile of the requests' uncached prompt tokens."""
    return int(quantile(result.uncached_tokens, q))


def uncached_mean(result: Result) -> float:
    """The mean of the requests' uncached prompt tokens; 0 of nothing."""
    return float(result.uncached_tokens.mean()) if result.requests else 0.0


def tel(result: Result, xi_tokens: int) -> int:
    """Tail excess latency: the tokens above xi, summed over the requests."""
    return int(np.maximum(result.uncached_tokens - xi_tokens, 0).sum())


def violations(result: Result, xi_tokens: int) -> int:
    """Requests with more than xi uncached tokens."""
    return int(np.count_nonzero(result.uncached_tokens > xi_tokens))


def share_above(result: Result, xi_tokens: int) -> float:
    """Violations as a share of the requests, 0..1."""
    return violations(result, xi_tokens) / result.requests if result.requests else 0.0


def tel_gap_closed(result: Result, stock: Result, best: Result, xi_tokens: int) -> float | None:
    """Of the TEL between two results, the share that this one saves; None: there is no gap.

    Below 0 it is worse than `stock`. `best` is a bound if it is tail-optimal Belady at this xi.
    """
    stock_tel = tel(stock, xi_tokens)
    gap = stock_tel - tel(best, xi_tokens)
    return (stock_tel - tel(result, xi_tokens)) / gap if gap > 0 else None


@dataclass(frozen=True)
class TenantShare:
    """One tenant's part. prompt_share, cached_share: of all tenants' tokens, 0..1."""

    tenant: str
    requests: int
    prompt_share: float
    cached_share: float
    cached_ratio: float


def tenant_shares(result: Result, tenant: NDArray[Any], names: Sequence[str]) -> list[TenantShare]:
    """Who gets how much of the cache.

    tenant, names: as in `Trace`. cached_ratio: of a tenant's own prompt tokens, those cached.
    """

    def per_tenant(values: Int64) -> Int64:
        sums = np.zeros(len(names), np.int64)
        np.add.at(sums, tenant, values)
        return sums

    requests = per_tenant(np.ones_like(result.prompt_tokens))
    prompt, cached = per_tenant(result.prompt_tokens), per_tenant(result.cached_tokens)
    return [
        TenantShare(
            tenant=name,
            requests=int(requests[index]),
            prompt_share=_share(prompt[index], prompt.sum()),
            cached_share=_share(cached[index], cached.sum()),
            cached_ratio=_share(cached[index], prompt[index]),
        )
        for index, name in enumerate(names)
    ]


def _share(part: int, whole: int) -> float:
    return float(part / whole) if whole else 0.0


def age_quantile(ages: Int64, q: float) -> tuple[float, float] | None:
    """Between which two ages, in seconds, the q-quantile of `Result.hit_age` or `eviction_age` is.

    Blocks are found while younger than what is evicted: when the two come close, reuse is being
    lost. None: there were no blocks.
    """
    counts = np.cumsum(ages)
    if counts[-1] == 0:
        return None
    rank = max(1, math.ceil(q * int(counts[-1]) - 1e-9))
    bin_index = int(np.searchsorted(counts, rank))
    low = 0.0 if bin_index == 0 else float(AGE_BOUNDS[bin_index - 1])
    return low, float(AGE_BOUNDS[bin_index]) if bin_index < len(AGE_BOUNDS) else math.inf
