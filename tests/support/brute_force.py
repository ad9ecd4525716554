"""The least that any choice of evictions can cost: all choices tried, one request at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from itertools import combinations, pairwise

from evictune_policies.algorithms.catalog import Chains


def least_cost(
    chains: Chains,
    capacity_blocks: int,
    block_tokens: int,
    cost: Callable[[int, int], int],
    blocks: Sequence[int] | None = None,
) -> int:
    """The least sum of costs that evictions of blocks nobody holds can lead to.

    Every request has to get all its blocks, those it hits and new ones; all stay cached when it
    ends, copies too. Blocks without content are taken before any cached one.

    Args:
        chains: Of a tiny trace; no request longer than the pool.
        capacity_blocks: The pool.
        block_tokens: Tokens of a block.
        cost: Of a request that hits so many blocks: `cost(request, hits)`.
        blocks: How many each request holds in the end, those without content too; None: its chain.
    """
    bounds = [int(start) for start in chains.starts]
    requests = [
        tuple(int(content) for content in chains.contents[first:end])
        for first, end in pairwise(bounds)
    ]

    held = [len(chain) for chain in requests] if blocks is None else blocks

    @cache
    def search(request: int, cached: tuple[int, ...]) -> int:
        """From this request on, with these contents in the pool, sorted."""
        if request == len(requests):
            return 0
        chain = requests[request]
        reusable = (int(chains.prompt_tokens[request]) - 1) // block_tokens
        hits = 0
        while hits < min(reusable, len(chain)) and chain[hits] in cached:
            hits += 1
        idle = list((Counter(cached) - Counter(chain[:hits])).elements())
        kept = min(len(idle), capacity_blocks - held[request])
        return cost(request, hits) + min(
            search(request + 1, tuple(sorted(chain + choice)))
            for choice in set(combinations(idle, kept))
        )

    return search(0, ())
