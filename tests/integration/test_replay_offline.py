"""The offline bounds hold for the replay with all its odd corners, not for tidy chains alone.

Partial blocks and the blocks of outputs take places, the last output token is never computed,
conversations share beginnings and repeat answers. The loop runs uncompiled: the compiled one is
compared with it elsewhere.
"""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from evictune_policies.algorithms.future import hits_if_nothing_is_evicted
from evictune_policies.replay.simulation.order import OrderReplay
from evictune_policies.replay.traces.assumptions import Assumptions
from evictune_policies.replay.traces.reading import read_trace
from evictune_policies.replay.traces.trace import Trace
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.brute_force import least_cost

BLOCK = 4
MESSAGES = st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 9)), min_size=2, max_size=4)


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """A few short conversations whose turns are mixed. A message is one letter, 4 to a token."""
    conversations = [
        {
            "conversations": [
                {"from": ("human", "gpt")[index % 2], "value": 4 * tokens * letter}
                for index, (letter, tokens) in enumerate(messages)
            ]
        }
        for messages in draw(st.lists(MESSAGES, min_size=2, max_size=4))
    ]
    with TemporaryDirectory() as directory:
        path = Path(directory, "conversations.json")
        path.write_text(json.dumps(conversations))
        seed = draw(st.integers(0, 99))
        return read_trace(path, "conversations", Assumptions(1.0, 2.0, seed, BLOCK))


def computed_blocks(trace: Trace) -> list[int]:
    computed = trace.prompt_tokens + np.maximum(trace.output_tokens - 1, 0)
    return [int(blocks) for blocks in -(-computed // BLOCK)]


@settings(max_examples=150)
@given(trace=traces(), room=st.integers(0, 5))
def test_belady_has_the_most_hits_there_are(trace: Trace, room: int) -> None:
    replay = OrderReplay(trace)
    capacity = replay.least_capacity + room
    result = replay.run("belady", capacity, plain=True)
    least = least_cost(
        trace.chains(), capacity, BLOCK, lambda request, hits: -hits, computed_blocks(trace)
    )
    assert int(result.cached_tokens.sum()) // BLOCK == -least


@settings(max_examples=150)
@given(trace=traces(), room=st.integers(0, 5), xi=st.integers(0, 24))
def test_tail_belady_is_within_its_rounding_of_the_least_tel(
    trace: Trace, room: int, xi: int
) -> None:
    """Prompts of any length: of each request, one block may save less than the others."""
    replay = OrderReplay(trace)
    capacity = replay.least_capacity + room
    result = replay.run("tail-belady", capacity, xi_tokens=xi, plain=True)
    prompts = trace.prompt_tokens
    least = least_cost(
        trace.chains(),
        capacity,
        BLOCK,
        lambda request, hits: max(0, int(prompts[request]) - hits * BLOCK - xi),
        computed_blocks(trace),
    )
    excess = np.maximum(0, result.uncached_tokens - xi)
    # What a request hit below xi, beyond the block border, it has been credited with too much.
    credit = (result.uncached_tokens < xi) & (result.uncached_tokens > xi - BLOCK)
    rounding = np.where(credit, xi - result.uncached_tokens, 0)
    assert least <= int(excess.sum()) <= least + int(rounding.sum())


@settings(max_examples=50)
@given(trace=traces())
def test_an_infinite_cache_misses_what_was_never_seen(trace: Trace) -> None:
    replay = OrderReplay(trace)
    result = replay.run("infinite", replay.least_capacity, plain=True)
    floor = hits_if_nothing_is_evicted(trace.chains(), BLOCK)
    assert (result.cached_tokens // BLOCK).tolist() == floor.tolist()
    assert result.recomputed_tokens == 0
