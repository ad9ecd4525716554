"""The quick study of T-LRU that the check values come from, done again: dictionaries, no blocks.

Its rule differs from vLLM's in what it takes for granted: a partial last block is cached and found
like a whole one, a prompt that repeats is found whole, outputs take no room. And it counts in
whole blocks: H is the prompt's blocks, the partial one included, q_hat and xi are rounded up.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from itertools import pairwise

import numpy as np
from evictune_policies.replay.traces.trace import Trace

Queue = OrderedDict[int, None]


def as_studied(trace: Trace) -> Trace:
    """A trace of which vLLM's rule makes what the study made of the original.

    Each id is a whole block, and one more token is computed. That token takes a place of its own
    while the request runs: give the replay one block more than the study had.
    """
    known = np.diff(trace.starts) * trace.block_tokens
    return replace(
        trace,
        prompt_tokens=known + 1,
        known_tokens=known,
        output_tokens=np.zeros_like(trace.output_tokens),
    )


def uncached_tokens(
    trace: Trace,
    capacity_blocks: int,
    xi_tokens: int,
    q_hat_tokens: int,
    *,
    keep_largest: bool = False,
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Replay T-LRU by the study's rule: uncached prompt tokens per request.

    keep_largest: False: blocks are sorted by the length of the request that let go of them last, as
        the study did. True: by the longest request that held them since they were filled, as
        `t_lru` does.
    """
    size = trace.block_tokens
    slack = -(-q_hat_tokens // size) - -(-xi_tokens // size)
    starts = trace.starts.tolist()
    contents = trace.contents.tolist()
    safe, protected = Queue(), Queue()
    longest: dict[int, int] = {}
    hits = []
    for begin, end in pairwise(starts):
        chain = contents[begin:end]
        found = 0
        while found < len(chain) and (chain[found] in safe or chain[found] in protected):
            found += 1
        hits.append(found)
        for content in chain:
            safe.pop(content, None)
            protected.pop(content, None)
        for _ in range(len(safe) + len(protected) + len(chain) - capacity_blocks):
            lost, _ = (safe or protected).popitem(last=False)
            longest.pop(lost, None)
        for index in reversed(range(len(chain))):
            length = len(chain)
            if keep_largest:
                length = max(length, longest.get(chain[index], 0))
                longest[chain[index]] = length
            (safe if index >= length + slack else protected)[chain[index]] = None
    return trace.prompt_tokens - np.minimum(np.array(hits) * size, trace.prompt_tokens)
