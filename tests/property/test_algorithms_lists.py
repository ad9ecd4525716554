"""Policies that order blocks in lists, against their definition, on any small workload."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from evictune_policies.algorithms.catalog import POLICIES, Setting
from evictune_policies.algorithms.operations import Visit, expired
from evictune_policies.algorithms.pool import NONE, clear
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.plain_replay import (
    Outcome,
    PlainCache,
    PlainRequest,
    drive,
    replay_plain,
    setting_of,
)
from tests.support.plain_workloads import BLOCK_TOKENS, LONGEST, workload, workloads
from tests.support.reference_cache import (
    Content,
    ExpectedTailCache,
    ReferenceCache,
    foretold,
    least_recent,
    tail_optimized,
)
from tests.support.reference_radix import RadixTree

LISTS = ("lru", "prefix-lru", "radix-lru", "t-lru", "et-lru", "ttl-5m", "ttl-1h")
CAPACITIES = st.integers(LONGEST, LONGEST + 6)
XI = st.sampled_from([0, 1, 4, 9, 13, 20, 38, 60, 200])
Q_HAT = st.sampled_from([0, 3, 8])
EXAMPLES = settings(max_examples=60)


def contents(requests: list[PlainRequest]) -> list[Content]:
    """The reference's contents by number, which are dealt out as they first appear."""
    known: dict[Content, None] = {}
    for request in requests:
        for index in range(len(request.blocks)):
            known.setdefault(request.blocks[: index + 1])
    return list(known)


def same(outcome: Outcome, reference: ReferenceCache, requests: list[PlainRequest]) -> None:
    """Fail unless both found and lost the same."""
    names = contents(requests)
    assert outcome.hits == reference.hits
    assert [(request, names[n]) for request, n in outcome.evicted] == reference.evicted
    assert sorted((request, names[n]) for request, n in outcome.expired) == sorted(
        reference.expired
    )


@settings(max_examples=150)
@given(workloads(), CAPACITIES, st.booleans(), XI, Q_HAT)
def test_t_lru_is_its_definition(
    requests: list[PlainRequest], capacity: int, overlap: bool, xi: int, q_hat: int
) -> None:
    setting = setting_of(requests, capacity, BLOCK_TOKENS, xi_tokens=xi, q_hat_tokens=q_hat)
    longest = capacity * BLOCK_TOKENS
    reference = ReferenceCache(requests, capacity, BLOCK_TOKENS, tail_optimized(xi, q_hat, longest))
    drive(reference, requests, overlap=overlap)
    same(replay_plain(requests, POLICIES["t-lru"], setting, overlap=overlap), reference, requests)


@EXAMPLES
@given(workloads(), CAPACITIES, st.booleans(), st.booleans())
def test_lru_is_its_definition(
    requests: list[PlainRequest], capacity: int, overlap: bool, suffix_first: bool
) -> None:
    setting = setting_of(requests, capacity, BLOCK_TOKENS)
    reference = ReferenceCache(
        requests, capacity, BLOCK_TOKENS, least_recent, suffix_first=suffix_first
    )
    drive(reference, requests, overlap=overlap)
    policy = POLICIES["prefix-lru" if suffix_first else "lru"]
    same(replay_plain(requests, policy, setting, overlap=overlap), reference, requests)


@EXAMPLES
@given(workloads(), CAPACITIES, st.booleans())
def test_time_to_live_is_its_definition(
    requests: list[PlainRequest], capacity: int, overlap: bool
) -> None:
    setting = setting_of(requests, capacity, BLOCK_TOKENS)
    reference = ReferenceCache(
        requests, capacity, BLOCK_TOKENS, least_recent, seconds_to_live=300.0
    )
    drive(reference, requests, overlap=overlap)
    same(replay_plain(requests, POLICIES["ttl-5m"], setting, overlap=overlap), reference, requests)


@EXAMPLES
@given(workloads(), CAPACITIES)
def test_radix_lru_is_its_definition(requests: list[PlainRequest], capacity: int) -> None:
    requests = [
        replace(request, prompt_tokens=request.prompt_tokens // BLOCK_TOKENS * BLOCK_TOKENS + 1)
        for request in requests
    ]
    setting = setting_of(requests, capacity, BLOCK_TOKENS)
    reference = RadixTree(requests, capacity, BLOCK_TOKENS)
    reference.run()
    assert replay_plain(requests, POLICIES["radix-lru"], setting).hits == reference.hits


@EXAMPLES
@given(workloads(16), CAPACITIES, st.booleans(), XI, Q_HAT, st.booleans())
def test_t_lru_that_is_told_is_its_definition(
    requests: list[PlainRequest],
    capacity: int,
    overlap: bool,
    xi: int,
    q_hat: int,
    lengths: bool,
) -> None:
    setting = setting_of(requests, capacity, BLOCK_TOKENS, xi_tokens=xi, q_hat_tokens=q_hat)
    final = [request.final for request in requests]
    rule = foretold(xi, q_hat, final, lengths=lengths)
    reference = ReferenceCache(requests, capacity, BLOCK_TOKENS, rule)
    drive(reference, requests, overlap=overlap)
    policy = POLICIES["length-aware-t-lru" if lengths else "end-aware-t-lru"]
    same(replay_plain(requests, policy, setting, overlap=overlap), reference, requests)


@EXAMPLES
@given(workloads(), CAPACITIES, st.booleans(), XI, Q_HAT)
def test_et_lru_is_its_definition(
    requests: list[PlainRequest], capacity: int, overlap: bool, xi: int, q_hat: int
) -> None:
    setting = setting_of(requests, capacity, BLOCK_TOKENS, xi_tokens=xi, q_hat_tokens=q_hat)
    reference = ExpectedTailCache(requests, capacity, BLOCK_TOKENS, xi, q_hat)
    drive(reference, requests, overlap=overlap)
    same(replay_plain(requests, POLICIES["et-lru"], setting, overlap=overlap), reference, requests)


@EXAMPLES
@given(workloads(), CAPACITIES, st.booleans(), st.sampled_from([0, 10_000]), Q_HAT)
def test_t_lru_is_lru_at_both_ends(
    requests: list[PlainRequest], capacity: int, overlap: bool, xi: int, q_hat: int
) -> None:
    setting = setting_of(requests, capacity, BLOCK_TOKENS, xi_tokens=xi, q_hat_tokens=q_hat)
    tail = replay_plain(requests, POLICIES["t-lru"], setting, overlap=overlap)
    assert tail == replay_plain(requests, POLICIES["prefix-lru"], setting, overlap=overlap)


@pytest.mark.parametrize("name", LISTS)
@settings(max_examples=20)
@given(workloads(), CAPACITIES, st.booleans(), st.randoms(use_true_random=False))
def test_block_numbers_mean_nothing(
    name: str, requests: list[PlainRequest], capacity: int, overlap: bool, random: object
) -> None:
    setting = setting_of(requests, capacity, BLOCK_TOKENS, xi_tokens=12, q_hat_tokens=3)
    numbering = list(range(capacity))
    random.shuffle(numbering)  # type: ignore[attr-defined]
    plain = replay_plain(requests, POLICIES[name], setting, overlap=overlap)
    assert plain == replay_plain(
        requests, POLICIES[name], setting, overlap=overlap, numbering=numbering
    )


class WatchedCache(PlainCache):
    """finished: of every block, whether who let go of it last had finished."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.finished: dict[int, bool] = {}

    def _release(self, visit: Visit) -> None:
        self.finished.update(dict.fromkeys(self.held[visit.request], bool(visit.finished)))
        super()._release(visit)


# Of this one a preempted request's copy of a block stayed when all before it had gone.
COPY = workload(972, 7)


@pytest.mark.parametrize("name", [name for name in LISTS if name != "lru"])
@settings(max_examples=20)
@given(workloads(), CAPACITIES, st.booleans())
@example(COPY, LONGEST, True)
def test_nothing_is_stranded(
    name: str, requests: list[PlainRequest], capacity: int, overlap: bool
) -> None:
    """What is cached when all have ended can be hit: all that comes before it is cached, too.

    The exception is the copy of a block that a preempted request computed anew, as vLLM does with
    the last one: its region was settled when it was let go, and nobody comes back for it.
    """
    setting = setting_of(requests, capacity, BLOCK_TOKENS, xi_tokens=12, q_hat_tokens=3)
    cache = WatchedCache(requests, POLICIES[name], setting)
    drive(cache, requests, overlap=overlap)
    while (block := expired(cache.state, cache.pool, 0.0)) != NONE:
        clear(cache.pool, block)
    for content in np.flatnonzero(cache.pool.resident != NONE):
        parent = cache.pool.parent[content]
        if cache.finished[int(cache.pool.resident[content])]:
            assert parent == NONE or cache.pool.resident[parent] != NONE


@pytest.mark.parametrize("name", LISTS)
@settings(max_examples=20)
@given(workloads(), CAPACITIES, st.booleans())
def test_no_look_ahead(
    name: str, requests: list[PlainRequest], capacity: int, overlap: bool
) -> None:
    """What is still to come changes nothing of what was: half the requests, half the outcome."""
    half = requests[: (len(requests) + 1) // 2]
    outcomes = []
    for some in (requests, half):
        setting: Setting = setting_of(some, capacity, BLOCK_TOKENS, xi_tokens=12, q_hat_tokens=3)
        outcomes.append(replay_plain(some, POLICIES[name], setting))
    whole, first = outcomes
    assert {request: whole.hits[request] for request in first.hits} == first.hits
    assert [lost for lost in whole.evicted if lost[0] < len(half)] == first.evicted
