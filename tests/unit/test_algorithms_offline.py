"""The offline yardsticks, on cases worked by hand. Blocks are of 4 tokens."""

from __future__ import annotations

import numpy as np
import pytest
from evictune_policies.algorithms.catalog import POLICIES
from evictune_policies.algorithms.future import (
    eviction_keys,
    hits_if_nothing_is_evicted,
    hits_that_count,
    next_occurrence,
)
from evictune_policies.algorithms.infinite import room_for_everything

from tests.support.plain_replay import (
    Outcome,
    PlainCache,
    PlainRequest,
    chains_of,
    replay_plain,
    setting_of,
)

BLOCK = 4


def request(*blocks: int, prompt: int | None = None) -> PlainRequest:
    """A prompt of these blocks and one token more, or of so many tokens."""
    tokens = len(blocks) * BLOCK + 1 if prompt is None else prompt
    return PlainRequest(blocks, tokens, max(tokens, len(blocks) * BLOCK))


def replay(name: str, requests: list[PlainRequest], capacity: int, xi_tokens: int = 0) -> Outcome:
    setting = setting_of(requests, capacity, BLOCK, xi_tokens=xi_tokens)
    return replay_plain(requests, POLICIES[name], setting)


def test_next_occurrence() -> None:
    assert next_occurrence(np.array([3, 1, 3, 0, 3, 1], np.int32)).tolist() == [2, 5, 4, 6, 6, 6]
    assert next_occurrence(np.array([], np.int32)).tolist() == []


@pytest.mark.parametrize(
    ("prompt", "xi", "expected"),
    [
        (13, 0, 3),
        (12, 0, 2),  # its last token is computed, and so its last block
        (13, 1, 3),
        (13, 4, 3),  # 9 tokens above xi: the third block saves one
        (13, 5, 2),
        (12, 4, 2),
        (13, 13, 0),
        (13, 1000, 0),
        (1, 0, 0),
        (100, 0, 3),  # there are no more blocks
    ],
)
def test_hits_that_count(prompt: int, xi: int, expected: int) -> None:
    chains = chains_of([request(1, 2, 3, prompt=prompt)])
    assert hits_that_count(chains, BLOCK, xi).tolist() == [expected]


def test_eviction_keys() -> None:
    """Entries 0 1 2 | 3 | 4 5 6 of the chains abc, a, abd; nothing counts of the request a."""
    chains = chains_of([request(1, 2, 3), request(1), request(1, 2, 4)])
    keys = eviction_keys(chains, BLOCK, xi_tokens=5)
    assert keys.tolist() == [7 + 3, 5, 14 + 2, 4, 14 + 0, 14 + 1, 14 + 2]


@pytest.mark.parametrize(
    ("pages", "frames", "faults"),
    [
        # Belady, Nelson, Shedler, CACM 12, 1969; Silberschatz et al., Operating System Concepts.
        ([1, 2, 3, 4, 1, 2, 5, 1, 2, 3, 4, 5], 3, 7),
        ([1, 2, 3, 4, 1, 2, 5, 1, 2, 3, 4, 5], 4, 6),
        ([7, 0, 1, 2, 0, 3, 0, 4, 2, 3, 0, 3, 2, 1, 2, 0, 1, 7, 0, 1], 3, 9),
    ],
)
@pytest.mark.parametrize("name", ["belady", "tail-belady"])
def test_the_textbooks_reference_strings(
    name: str, pages: list[int], frames: int, faults: int
) -> None:
    outcome = replay(name, [request(page) for page in pages], frames)
    assert len(pages) - sum(outcome.hits.values()) == faults


def test_of_equally_far_blocks_the_deepest_goes_first() -> None:
    requests = [request(1, 2, 3), request(9), request(1, 2, 3)]
    outcome = replay("belady", requests, 3)
    assert outcome.evicted[0] == (1, 2)
    assert outcome.hits[2] == 2


def test_a_block_that_is_computed_anew_anyway_is_worth_nothing() -> None:
    """The chain ab comes again soonest, but b holds its last token."""
    requests = [request(1, 2), request(3), request(4), request(1, 2, prompt=8), request(3)]
    outcome = replay("belady", requests, 3)
    assert outcome.evicted[0] == (2, 1)
    assert outcome.hits == {0: 0, 1: 0, 2: 0, 3: 1, 4: 1}


def test_a_block_in_the_middle_may_go_for_the_tail() -> None:
    """abc, a one-shot of two blocks, a short visitor of a, abc.

    With xi 5 the visitor is never late: it may bring a back by itself, and b stays for the last.
    """
    requests = [request(1, 2, 3), request(8, 9), request(1), request(1, 2, 3)]
    outcome = replay("tail-belady", requests, 3, xi_tokens=5)
    assert [content for _, content in outcome.evicted[:2]] == [2, 0]
    assert outcome.hits == {0: 0, 1: 0, 2: 0, 3: 2}
    for other in ("belady", "prefix-lru", "t-lru"):
        assert replay(other, requests, 3, xi_tokens=5).hits[3] == 1


def test_of_two_copies_one_is_worth_nothing() -> None:
    """The repeat leaves two blocks with b; the newcomer takes one of them, and all is hit."""
    requests = [request(1, 2), request(1, 2, prompt=8), request(5), request(5), request(1, 2)]
    outcome = replay("belady", requests, 3)
    assert outcome.evicted == [(2, 1)]
    assert outcome.hits == {0: 0, 1: 1, 2: 0, 3: 1, 4: 2}


def test_a_preempted_request_finds_its_blocks_again() -> None:
    """Though it comes only once in the trace, and the other block soon again."""
    requests = [request(1, 2), request(5), request(6, 7), request(5)]
    setting = setting_of(requests, 4, BLOCK)
    cache = PlainCache(requests, POLICIES["belady"], setting)
    assert cache.start(0, 0.0)
    assert cache.start(1, 0.0)
    assert cache.finish(1, 0.0)
    cache.preempt(0, 0.0)
    assert cache.start(2, 0.0)
    assert cache.outcome.evicted == [(2, 2)]


def test_hits_if_nothing_is_evicted() -> None:
    requests = [request(1, 2), request(1, 2, 3), request(1, 2, prompt=8), request(4), request(1, 5)]
    assert hits_if_nothing_is_evicted(chains_of(requests), BLOCK).tolist() == [0, 2, 1, 0, 1]


def test_the_infinite_cache_keeps_one_of_everything() -> None:
    requests = [request(1, 2, prompt=8)] * 20 + [request(3, 4), request(1, 2)]
    capacity = room_for_everything(setting_of(requests, 2, BLOCK))
    assert capacity == 4 + 3
    outcome = replay("infinite", requests, capacity)
    assert outcome.hits[21] == 2
    assert {content for _, content in outcome.evicted} == {1}, "copies of the repeated last block"


def test_all_of_them_say_that_they_are_offline() -> None:
    offline = {policy.name for policy in POLICIES.values() if policy.offline}
    assert offline >= {"belady", "tail-belady", "infinite"}
    assert POLICIES["tail-belady"].parameters == ("xi_tokens",)
