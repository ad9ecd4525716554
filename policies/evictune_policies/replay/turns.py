"""How much a conversation grows from one turn to the next, as the trace shows it."""

from __future__ import annotations

import numpy as np

from evictune_policies.algorithms.pool import NONE
from evictune_policies.replay.trace import Int32, Int64, Trace


def growth(trace: Trace) -> Int64:
    """Per turn that follows another one: its prompt's tokens beyond the turn before.

    What the turn before had is what the policy counts as its H: prompt and output. A turn is
    known by `trace.previous`; where the trace does not say, it is a request whose longest known
    prefix is all of an earlier request but a partial block.
    """
    previous = trace.previous if (trace.previous != NONE).any() else followed(trace)
    turn = np.flatnonzero(previous != NONE)
    grown = trace.prompt_tokens[turn] - trace.tokens[previous[turn]]
    return np.maximum(grown, 0)


def followed(trace: Trace) -> Int32:
    """Per request the earlier one that it continues, by its contents; NONE: none."""
    previous = np.full(trace.requests, NONE, np.int32)
    chains = trace.chains()
    last_of = np.full(trace.distinct, NONE, np.int32)
    for request in range(trace.requests):
        chain = chains.contents[chains.starts[request] : chains.starts[request + 1]]
        if len(chain) == 0:
            continue
        enders = last_of[chain]
        known = np.flatnonzero(enders != NONE)
        if len(known):
            previous[request] = enders[known[-1]]
        last_of[chain[-1]] = request
    return previous
