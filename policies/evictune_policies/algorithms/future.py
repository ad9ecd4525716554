"""What the requests to come do with a block: what offline policies know and online ones cannot.

An *entry* is one place in `Chains.contents`: one block of one request. Entries grow with time and,
within a request, with depth.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from evictune_policies.algorithms.catalog import Chains

Int64 = NDArray[np.int64]


def next_occurrence(contents: NDArray[np.int32]) -> Int64:
    """Per entry the next entry with the same content; len(contents): there is none."""
    order = np.argsort(contents, kind="stable")
    again = contents[order[1:]] == contents[order[:-1]]
    following = np.full(len(contents), len(contents), np.int64)
    following[order[:-1][again]] = order[1:][again]
    return following


def hits_that_count(chains: Chains, block_tokens: int, xi_tokens: int) -> Int64:
    """Per request, how many leading blocks lower max(0, uncached tokens - xi) when they are hit.

    Those that start before `prompt_tokens - xi_tokens`: the hits on later blocks only lower what is
    below xi already. Never the block of the prompt's last token, which is always computed.
    """
    reusable = (chains.prompt_tokens - 1) // block_tokens
    above = -((xi_tokens - chains.prompt_tokens) // block_tokens)
    return np.clip(np.minimum(reusable, above), 0, np.diff(chains.starts))


def eviction_keys(chains: Chains, block_tokens: int, xi_tokens: int = 0) -> Int64:
    """Per entry, how soon its block may go once the entry's request lets go of it: highest first.

    In this order: contents that never come again, deepest first; contents whose next request
    computes them anew at no loss (`hits_that_count`), furthest first; the others, furthest first,
    of one request the deepest.
    """
    entries = len(chains.contents)
    lengths = np.diff(chains.starts)
    counting = np.repeat(
        chains.starts[:-1] + hits_that_count(chains, block_tokens, xi_tokens), lengths
    )
    counts = np.append(np.arange(entries) < counting, True)
    following = next_occurrence(chains.contents)
    key = np.where(counts[following], following, entries + following)
    never = following == entries
    key[never] = 2 * entries + chains.depth[chains.contents[never]]
    return key


def hits_if_nothing_is_evicted(chains: Chains, block_tokens: int) -> Int64:
    """Per request, the blocks it would hit in a cache without bounds, one request at a time.

    No policy has more hits in any request.
    """
    entries = len(chains.contents)
    lengths = np.diff(chains.starts)
    first = np.full(len(chains.parent), entries, np.int64)
    np.minimum.at(first, chains.contents, np.arange(entries))
    seen = first[chains.contents] < np.repeat(chains.starts[:-1], lengths)
    # Whatever is seen has been seen with all that comes before it: the count is the prefix.
    count = np.concatenate(([0], np.cumsum(seen)))
    known = count[chains.starts[1:]] - count[chains.starts[:-1]]
    hits: Int64 = np.clip(known, 0, np.maximum(0, (chains.prompt_tokens - 1) // block_tokens))
    return hits
