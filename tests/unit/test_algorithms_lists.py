"""Policies that order blocks in lists: what each does to a chain, by hand."""

from __future__ import annotations

import pytest
from evictune_policies.algorithms.catalog import POLICIES

from tests.support.plain_replay import PlainCache, PlainRequest, replay_plain, setting_of

BLOCK = 16


def turn(labels: str, tokens: int | None = None, **others: float | bool) -> PlainRequest:
    """A prompt of one block a letter and a token, of which nothing is an output."""
    length = len(labels) * BLOCK + 1
    blocks = tuple(ord(label) for label in labels)
    return PlainRequest(blocks, length, tokens or length, **others)  # type: ignore[arg-type]


def lost(requests: list[PlainRequest], policy: str, capacity: int, **knobs: int) -> str:
    """The letters that were evicted, in order."""
    setting = setting_of(requests, capacity, BLOCK, **knobs)
    names: dict[int, int] = {}
    for request, start in zip(requests, setting.chains.starts.tolist(), strict=False):
        for index, label in enumerate(request.blocks):
            names[int(setting.chains.contents[start + index])] = label
    outcome = replay_plain(requests, POLICIES[policy], setting)
    return "".join(chr(names[content]) for _, content in outcome.evicted)


def safe_blocks(length: int, xi: int, q_hat: int) -> int:
    """TEL-safe blocks of a conversation of so many tokens that has just ended."""
    labels = "".join(chr(0x4E00 + index) for index in range(length // BLOCK))
    conversation = turn(labels, tokens=length)
    setting = setting_of([conversation], 200, BLOCK, xi_tokens=xi, q_hat_tokens=q_hat)
    cache = PlainCache([conversation], POLICIES["t-lru"], setting)
    assert cache.start(0, 0.0)
    assert cache.finish(0, 0.0)
    lists, anchor = cache.state.regions, setting.capacity_blocks
    count, block = 0, lists.after[anchor]
    while block != anchor:
        count, block = count + 1, lists.after[block]
    return count


@pytest.mark.parametrize(
    ("length", "xi", "kept", "safe"),
    [(2000, 1200, 63, 62), (300, 1200, 0, 18), (2000, 0, 125, 0), (2000, 4000, 0, 125)],
)
def test_t_lru_arithmetic(length: int, xi: int, kept: int, safe: int) -> None:
    """Field case PS-3: max(0, L + q_hat - xi) tokens are kept, in whole blocks."""
    assert safe_blocks(length, xi, 200) == safe
    assert length // BLOCK - safe == kept


def test_t_lru_counts_the_longest_length_seen_not_what_is_left() -> None:
    """Field case PS-3: the line does not slide down as the tail is trimmed."""
    long = "abcdefghij"
    others = [turn(chr(0x4E00 + index)) for index in range(12)]
    requests = [turn(long, tokens=160), *others]
    # 160 + 0 - 80 = 80 tokens: five blocks stay while there is anything else to take.
    evicted = lost(requests, "t-lru", 10, xi_tokens=80)
    assert evicted[:5] == "jihgf"
    assert not set(evicted) & set("abcde")


def test_a_shared_block_is_safe_only_if_it_is_safe_for_all() -> None:
    """Field case PS-3, shared prefixes: a short visitor does not give away a long one's head."""
    requests = [turn("sabcdefg"), turn("sx"), *[turn(letter) for letter in "123456789"]]
    assert "s" in lost(requests, "prefix-lru", 9)
    assert not set(lost(requests, "t-lru", 9, xi_tokens=80)) & set("sab")


def test_a_block_that_is_filled_anew_forgets_who_held_it() -> None:
    # In a pool of four, the long conversation is gone when the short one asks for its head.
    requests = [turn("abcd", tokens=900), turn("1234"), turn("a"), turn("x"), turn("567")]
    assert lost(requests, "t-lru", 4, xi_tokens=100)[-3:] == "21a"


def test_lru_strands_what_prefix_lru_keeps() -> None:
    requests = [turn("abc"), turn("12"), turn("abc")]
    assert lost(requests, "lru", 4) == "abc1"
    assert lost(requests, "prefix-lru", 4) == "c2"


def test_time_to_live_ends_with_the_time_and_starts_anew_with_each_use() -> None:
    moments = [0.0, 299.0, 597.0, 900.0]
    requests = [turn("ab", arrival=moment) for moment in moments]
    for name, hits in (("ttl-5m", [0, 2, 2, 0]), ("ttl-1h", [0, 2, 2, 2])):
        outcome = replay_plain(requests, POLICIES[name], setting_of(requests, 9, BLOCK))
        assert list(outcome.hits.values()) == hits


def test_radix_lru_drops_the_whole_leaf() -> None:
    requests = [turn("abcd"), turn("xy"), turn("1"), turn("abcd")]
    for name, hits in (("radix-lru", 0), ("prefix-lru", 3)):
        outcome = replay_plain(requests, POLICIES[name], setting_of(requests, 6, BLOCK))
        assert outcome.hits[3] == hits
    # Where another request left it, the leaf ends.
    requests = [turn("abcd"), turn("ab"), turn("x"), turn("1"), turn("2"), turn("abcd")]
    outcome = replay_plain(requests, POLICIES["radix-lru"], setting_of(requests, 6, BLOCK))
    assert outcome.hits[5] == 2


def test_radix_lru_drops_the_copy_and_refreshes_the_original() -> None:
    whole = PlainRequest((1, 2), 2 * BLOCK, 2 * BLOCK)  # its last block is computed again
    requests = [turn("\x01\x02"), turn("x"), whole, turn("yz"), turn("\x01\x02")]
    outcome = replay_plain(requests, POLICIES["radix-lru"], setting_of(requests, 4, BLOCK))
    assert outcome.hits[2] == 1
    assert outcome.hits[4] == 2


def test_t_lru_that_is_told_of_an_end_evicts_the_whole_conversation_first() -> None:
    requests = [turn("abcd"), turn("xyz", final=True), turn("1"), turn("234")]
    assert lost(requests, "prefix-lru", 8) == "dcb"
    assert lost(requests, "end-aware-t-lru", 8) == "zyx"


def test_t_lru_that_is_told_of_the_next_prompt_keeps_what_it_needs() -> None:
    # With xi 32, abcd needs 81 - 32 = 49 tokens at its next turn, four blocks; pq needs one token.
    requests = [turn("abcd"), turn("pq"), turn("1"), turn("abcde"), turn("pq")]
    assert lost(requests, "t-lru", 6, xi_tokens=32)[0] == "d"
    assert lost(requests, "length-aware-t-lru", 6, xi_tokens=32)[0] == "q"


def test_et_lru_weighs_silence_against_length() -> None:
    """A conversation that came back every second, and then no more, is given up in the end."""
    chat = [turn("a" * n, arrival=float(n)) for n in range(1, 5)]
    flood = [turn(chr(0x4E00 + n), arrival=5.0 + 10.0 * n) for n in range(40)]
    assert lost([*chat, *flood], "t-lru", 8, xi_tokens=96, q_hat_tokens=64).count("a") == 1
    assert lost([*chat, *flood], "et-lru", 8, xi_tokens=96, q_hat_tokens=64).count("a") == 4
