"""Which request continues which conversation, read off the chains of a whole trace.

For policies that are told something of the future; no online policy may use this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from evictune_policies.algorithms.pool import NONE

if TYPE_CHECKING:
    from evictune_policies.algorithms.catalog import Chains

Int64 = NDArray[np.int64]


def turns_before(chains: Chains) -> Int64:
    """Per request the one it continues; NONE: none.

    A request continues the latest request whose whole chain its own begins with; of several such
    chains the longest. Requests without a whole block neither continue nor are continued.
    """
    before = np.full(len(chains.tokens), NONE, np.int64)
    last_turn = np.full(len(chains.parent), NONE, np.int64)  # per content: whose chain it ends
    for request in range(len(before)):
        begin, end = chains.starts[request], chains.starts[request + 1]
        owners = last_turn[chains.contents[begin:end]]
        known = np.flatnonzero(owners != NONE)
        if len(known) > 0:
            before[request] = owners[known[-1]]
        if end > begin:
            last_turn[chains.contents[end - 1]] = request
    return before


def last_turns(chains: Chains, before: Int64) -> Int64:
    """Per request the last turn of its conversation that comes after it; NONE: it is `final`.

    A request that is not final, although none continues it, has its next turn after the trace: the
    number of requests stands for that one. Where a conversation forks, its last turn is the latest.
    """
    requests = len(before)
    last = np.full(requests, NONE, np.int64)
    for request in range(requests - 1, -1, -1):
        if chains.final[request]:
            last[request] = NONE
        elif last[request] == NONE:
            last[request] = requests
        if before[request] != NONE:
            last[before[request]] = max(last[before[request]], request, last[request])
    return last


def next_prompts(chains: Chains, before: Int64) -> Int64:
    """Per request the tokens of the longest prompt that continues it; NONE: none does."""
    longest = np.full(len(before), NONE, np.int64)
    continuing = before != NONE
    np.maximum.at(longest, before[continuing], chains.prompt_tokens[continuing])
    return longest
