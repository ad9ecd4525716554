"""The sizes that a request has in the cache, by vLLM's rules."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evictune_policies.algorithms.pool import Int32
from evictune_policies.replay.traces.trace import Trace

Int64 = NDArray[np.int64]


class Requests(NamedTuple):
    """What the loop needs of a trace. Per request, but for `contents`; sizes in blocks.

    lookup: how many blocks may be hits. whole: how many have content. blocks: how many it holds at
    its end, the blank ones too.
    """

    arrival: NDArray[np.float64]
    starts: Int64
    contents: Int32
    lookup: Int64
    whole: Int64
    blocks: Int64
    prompt_tokens: Int64
    tokens: Int64


def requests_of(trace: Trace) -> Requests:
    """The sizes that follow from the lengths, by vLLM's rules."""
    computed = trace.prompt_tokens + np.maximum(trace.output_tokens - 1, 0)
    size = trace.block_tokens
    whole = np.minimum(trace.known_tokens, computed) // size
    return Requests(
        arrival=trace.arrival,
        starts=trace.starts,
        contents=trace.contents,
        lookup=np.minimum(np.maximum(trace.prompt_tokens - 1, 0) // size, whole),
        whole=whole,
        blocks=-(-computed // size),
        prompt_tokens=trace.prompt_tokens,
        tokens=trace.tokens,
    )


def unknown_tokens(trace: Trace) -> int:
    """Tokens, of outputs for the most part, of which the trace does not say what they are.

    In an engine their blocks stay in the cache and a next turn finds them. Here they take room only
    while their request runs, and the next turn's prompt brings them as something new. So where this
    is not 0, what a request has uncached is partly not known: too much by as much as its turn
    before had put out, and too little by what those blocks would have displaced.
    """
    return int((trace.tokens - trace.known_tokens).sum())
