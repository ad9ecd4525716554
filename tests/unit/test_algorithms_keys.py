"""Policies that choose among leaves, on cases worked by hand. A block has four tokens."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from evictune_policies.algorithms.catalog import POLICIES, Cost
from evictune_policies.algorithms.s3_fifo import MAIN, SMALL

from tests.support.plain_replay import Outcome, PlainCache, PlainRequest, replay_plain, setting_of

Chain = tuple[int, ...]
BLOCK = 4
# One block alone takes 6 seconds, 10 after another one, 14 after two.
STEEP = Cost(1.0, 0.25)


def whole(chain: Chain, arrival: float = 0.0) -> PlainRequest:
    """A prompt of these blocks and one token more: all of them may be hits."""
    tokens = BLOCK * len(chain) + 1
    return PlainRequest(chain, tokens, tokens, arrival)


def exact(chain: Chain) -> PlainRequest:
    """A prompt of just these blocks: the last one is always computed."""
    return PlainRequest(chain, BLOCK * len(chain), BLOCK * len(chain))


def cache_of(policy: str, requests: Sequence[PlainRequest], capacity: int) -> PlainCache:
    setting = setting_of(requests, capacity, BLOCK, cost=STEEP)
    return PlainCache(requests, POLICIES[policy], setting)


def lost(policy: str, requests: Sequence[PlainRequest], capacity: int) -> list[Chain]:
    """What is evicted, in order: each block by the labels up to it."""
    setting = setting_of(requests, capacity, BLOCK, cost=STEEP)
    outcome = replay_plain(requests, POLICIES[policy], setting)
    return _named(outcome, requests)


def _named(outcome: Outcome, requests: Sequence[PlainRequest]) -> list[Chain]:
    names: dict[Chain, None] = {}
    for request in requests:
        for length in range(1, len(request.blocks) + 1):
            names.setdefault(request.blocks[:length])
    return [list(names)[content] for _, content in outcome.evicted]


def flat(labels: str, seconds: float = 1.0) -> list[PlainRequest]:
    """A request of one block for each letter, so many seconds apart."""
    return [whole((ord(label),), index * seconds) for index, label in enumerate(labels)]


def letters(evicted: Sequence[Chain]) -> str:
    return "".join(chr(chain[0]) for chain in evicted)


def test_lfu_takes_the_least_used_and_among_equals_the_first() -> None:
    assert letters(lost("lfu", flat("AABCD"), 3)) == "B"
    assert letters(lost("lfu", flat("ABCBAD"), 3)) == "C"
    assert letters(lost("lfu", flat("ABCABCD"), 3)) == "A"


def test_lfu_forgets_a_count_with_the_block() -> None:
    assert letters(lost("lfu", flat("BBAAACBC"), 2)) == "BCB"


def test_old_fame_lasts_for_ever_unless_counts_age() -> None:
    stream = flat("AAAAABCDEFGHIJ")
    assert letters(lost("lfu", stream, 2)) == "BCDEFGHI"
    assert letters(lost("lfu-aging", stream, 2)) == "BCDEAFGH"


def test_a_chain_goes_from_its_end_whatever_is_said_by_the_keys() -> None:
    requests = [whole((1, 2, 3)), whole((9,)), whole((8,)), whole((7,))]
    assert lost("lfu", requests, 3) == [(1, 2, 3), (1, 2), (1,)]


def test_what_is_continued_stays_though_it_is_worth_least() -> None:
    requests = [whole((1,)), whole((1, 2, 3)), whole((9,)), whole((9,)), whole((8,))]
    assert lost("greedy-dual-size", requests, 4) == [(9,)]
    assert lost("gdsf", requests, 4) == [(9,)]
    assert lost("gdsf", [*requests[:-1], whole((9,)), whole((8,))], 4) == [(1, 2, 3)]


def test_the_clock_does_not_fall_when_a_cheap_prefix_goes_after_its_costly_end() -> None:
    """The chain goes with 14, 10 and 6; 9, 8 and 7 all come at 14 and cost 6."""
    requests = [whole((1, 2, 3)), whole((9,)), whole((8,)), whole((7,)), whole((6,))]
    for policy in ("greedy-dual-size", "gdsf"):
        assert lost(policy, requests, 3) == [(1, 2, 3), (1, 2), (1,), (9,)]


def test_a_copy_makes_a_continued_block_a_leaf_until_one_of_the_two_is_gone() -> None:
    requests = [whole((1, 2, 3)), exact((1, 2)), whole((7, 8, 9))]
    assert lost("lfu", requests, 4) == [(1, 2, 3), (1, 2), (1, 2)]
    used = [whole((1, 2, 3)), whole((1, 2, 3)), exact((1, 2)), whole((7, 8))]
    assert lost("lfu", used, 4) == [(1, 2), (1, 2, 3)]


def test_a_copy_is_found_when_the_first_is_gone() -> None:
    requests = [exact((1, 2)), exact((1, 2)), whole((7,)), whole((1, 2))]
    setting = setting_of(requests, 3, BLOCK)
    outcome = replay_plain(requests, POLICIES["lfu"], setting)
    assert _named(outcome, requests) == [(1, 2)]
    assert outcome.hits[3] == 2


def test_frequency_cost_holds_nothing_of_what_was_never_hit() -> None:
    assert letters(lost("frequency-cost", flat("AABC"), 2)) == "B"


def test_frequency_cost_weighs_hits_in_a_second() -> None:
    """A: two hits in 50 seconds. B: one hit."""
    assert letters(lost("frequency-cost", flat("AABBACC", seconds=10), 2)) == "A"


def test_frequency_cost_prefers_a_long_prefix_at_the_same_rate() -> None:
    requests = [whole((1, 2)), whole((1, 2)), whole((9,)), whole((9,)), whole((8,))]
    assert lost("frequency-cost", requests, 3) == [(9,)]


def test_pgdsf_takes_the_cost_per_token_of_the_request_that_computed() -> None:
    """9 tokens after none: 9 + 81 / 8 seconds; 5 tokens after 8: 5 + 5 * 21 / 8."""
    requests = [whole((1, 2)), whole((1, 2, 3))]
    cache = cache_of("pgdsf", requests, 8)
    for request in range(2):
        assert cache.start(request, 0.0)
        assert cache.finish(request, 0.0)
    assert cache.state.cost.tolist() == [19.125 / 9, 19.125 / 9, 18.125 / 5]
    assert cache.state.uses.tolist() == [2, 2, 1]
    assert cache.state.computed.tolist() == [1, 1, 1]


def test_pgdsf_remembers_what_was_evicted() -> None:
    requests = [whole((1,)), whole((2,)), whole((1,))]
    cache = cache_of("pgdsf", requests, 1)
    for request in range(3):
        assert cache.start(request, 0.0)
        assert cache.finish(request, 0.0)
    assert cache.state.uses.tolist() == [2, 1]
    assert cache.state.computed.tolist() == [2, 1]


def test_pgdsf_of_a_preempted_request_counts_what_it_finds_when_it_returns() -> None:
    """At first it finds two of its four blocks, and when it returns nothing."""
    requests = [whole((1, 2)), whole((1, 2, 3, 4)), whole((6, 7, 8, 9))]
    cache = cache_of("pgdsf", requests, 4)
    assert cache.start(0, 0.0)
    assert cache.finish(0, 0.0)
    assert cache.start(1, 0.0)
    cache.preempt(1, 0.0)
    assert cache.start(2, 0.0)
    assert cache.finish(2, 0.0)
    before = cache.state.cost.copy()
    assert cache.start(1, 0.0)
    all_of_it = (17 + 17 * 17 / 8) / 17
    assert (cache.state.cost - before)[:4].tolist() == pytest.approx([all_of_it] * 4)


def test_s3_fifo_lets_go_of_what_was_used_once() -> None:
    """Of twenty places two are small, A's and B's. A is promoted, so C makes room in the main."""
    stream = flat("ABCDEFGHIJKLMNOPQRSTAAUVW")
    assert letters(lost("s3-fifo", stream, 20)) == "BCU"


def test_s3_fifo_takes_a_ghost_into_the_main_queue() -> None:
    requests = flat("ABCDEFGHIJKLMNOPQRSTUA")
    cache = cache_of("s3-fifo", requests, 20)
    for request in range(len(requests)):
        assert cache.start(request, 0.0)
        assert cache.finish(request, 0.0)
    queue = cache.state.leaves.heap.heap
    assert queue[cache.pool.resident[0]] == MAIN
    assert queue[cache.pool.resident[20]] == SMALL


def test_s3_fifo_counts_to_three() -> None:
    requests = flat("A" * 10)
    cache = cache_of("s3-fifo", requests, 20)
    for request in range(len(requests)):
        assert cache.start(request, 0.0)
        assert cache.finish(request, 0.0)
    assert cache.state.uses.tolist() == [3] + [0] * 19


def test_sieve_moves_its_hand_and_not_its_blocks() -> None:
    """The mark of A is spent for B, that of C for D; D was the youngest: then from the oldest."""
    assert letters(lost("sieve", flat("ABCACDEF"), 3)) == "BDA"
