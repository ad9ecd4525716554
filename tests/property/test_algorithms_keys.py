"""Policies that choose among leaves, against their definitions, on any small workload."""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

import pytest
from evictune_policies.algorithms.catalog import POLICIES, Cost, Setting
from evictune_policies.algorithms.heap import ROOT, Heap, new_heap, pop, precedes, push, update
from evictune_policies.algorithms.heap import remove as take_out
from evictune_policies.algorithms.operations import IMPLEMENTATIONS, Operations, Visit
from evictune_policies.algorithms.pool import NONE, Pool
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.plain_replay import Outcome, PlainCache, PlainRequest, drive, setting_of
from tests.support.plain_workloads import BLOCK_TOKENS, LONGEST, workloads
from tests.support.reference_orders import BLOCK, LINEAR, QUADRATIC, Event, Order, order_of

KEYS = ("lfu", "lfu-aging", "frequency-cost", "greedy-dual-size", "gdsf", "pgdsf")
QUEUES = ("s3-fifo", "sieve")
CAPACITIES = st.integers(LONGEST, LONGEST + 14)
COST = Cost(LINEAR, QUADRATIC)


class Watched(NamedTuple):
    """A policy's state, and the order that it is held against at every eviction."""

    state: Any
    order: Order


def _event(pool: Pool, block: int, visit: Visit) -> Event:
    content = int(pool.content[block])
    depth = int(pool.depth[content])
    return Event(block, content, depth, visit.request, visit.tokens, visit.now)


def _start(watched: Watched, pool: Pool, block: int, visit: Visit) -> None:
    watched.order.start(_event(pool, block, visit))
    IMPLEMENTATIONS[type(watched.state)].start(watched.state, pool, block, visit)


def _hit(watched: Watched, pool: Pool, block: int, visit: Visit) -> None:
    watched.order.hit(_event(pool, block, visit))
    IMPLEMENTATIONS[type(watched.state)].hit(watched.state, pool, block, visit)


def _free(watched: Watched, pool: Pool, block: int, visit: Visit) -> None:
    watched.order.free(_event(pool, block, visit))
    IMPLEMENTATIONS[type(watched.state)].free(watched.state, pool, block, visit)


def _victim(watched: Watched, pool: Pool) -> int:
    _nothing_is_stranded(pool)
    candidates = _leaves(pool)
    heap: Heap = watched.state.leaves.heap
    assert candidates == {block for block, place in enumerate(heap.place) if place != NONE}
    victim = IMPLEMENTATIONS[type(watched.state)].victim(watched.state, pool)
    assert victim in candidates
    assert victim == watched.order.victim(candidates)
    return victim


def _never(watched: Watched, pool: Pool, now: float) -> int:
    return NONE


IMPLEMENTATIONS[Watched] = Operations(_start, _hit, _free, _victim, _never)


def _leaves(pool: Pool) -> set[int]:
    """Cached blocks that nobody holds, and that nothing in the pool needs."""
    contents = [int(content) for content in pool.content if content != NONE]
    parents = {int(pool.parent[content]) for content in contents}
    return {
        block
        for block, content in enumerate(pool.content)
        if content != NONE
        and pool.references[block] == 0
        and (int(content) not in parents or contents.count(int(content)) > 1)
    }


def _nothing_is_stranded(pool: Pool) -> None:
    contents = {int(content) for content in pool.content if content != NONE}
    assert all(pool.parent[content] in contents | {NONE} for content in contents)


def _watch(
    name: str,
    requests: list[PlainRequest],
    setting: Setting,
    overlap: bool,
    numbering: list[int] | None = None,
) -> Outcome:
    cache = PlainCache(requests, POLICIES[name], setting, numbering)
    cache.state = Watched(cache.state, order_of(name, setting.capacity_blocks))
    drive(cache, requests, overlap=overlap)
    _nothing_is_stranded(cache.pool)
    return cache.outcome


@pytest.mark.parametrize("name", KEYS + QUEUES)
@settings(max_examples=30)
@given(workloads(30), CAPACITIES, st.booleans())
def test_it_is_its_definition_and_only_leaves_go(
    name: str, requests: list[PlainRequest], capacity: int, overlap: bool
) -> None:
    assert BLOCK == BLOCK_TOKENS
    outcome = _watch(
        name, requests, setting_of(requests, capacity, BLOCK_TOKENS, cost=COST), overlap
    )
    assert len(outcome.hits) == len(requests)


@pytest.mark.parametrize("name", KEYS + QUEUES)
@settings(max_examples=15)
@given(workloads(), CAPACITIES, st.booleans(), st.randoms(use_true_random=False))
def test_block_numbers_mean_nothing(
    name: str, requests: list[PlainRequest], capacity: int, overlap: bool, random: Random
) -> None:
    setting = setting_of(requests, capacity, BLOCK_TOKENS, cost=COST)
    numbering = list(range(capacity))
    random.shuffle(numbering)
    plain = _replay(name, requests, setting, overlap)
    assert plain == _replay(name, requests, setting, overlap, numbering)


def _replay(
    name: str,
    requests: list[PlainRequest],
    setting: Setting,
    overlap: bool,
    numbering: list[int] | None = None,
) -> Outcome:
    cache = PlainCache(requests, POLICIES[name], setting, numbering)
    drive(cache, requests, overlap=overlap)
    return cache.outcome


@pytest.mark.parametrize("name", KEYS + QUEUES)
@settings(max_examples=15)
@given(workloads(), CAPACITIES)
def test_no_look_ahead(name: str, requests: list[PlainRequest], capacity: int) -> None:
    """What is still to come changes nothing of what was."""
    half = requests[: (len(requests) + 1) // 2]
    whole, first = (
        _replay(name, some, setting_of(some, capacity, BLOCK_TOKENS, cost=COST), False)
        for some in (requests, half)
    )
    assert {request: whole.hits[request] for request in first.hits} == first.hits
    assert [lost for lost in whole.evicted if lost[0] < len(half)] == first.evicted


@settings(max_examples=40)
@given(workloads(), CAPACITIES, st.booleans())
def test_where_all_blocks_cost_the_same_gdsf_is_lfu_with_ageing(
    requests: list[PlainRequest], capacity: int, overlap: bool
) -> None:
    setting = setting_of(requests, capacity, BLOCK_TOKENS, cost=Cost(0.5, 0.0))
    gdsf = _replay("gdsf", requests, setting, overlap)
    assert gdsf == _replay("lfu-aging", requests, setting, overlap)


@settings(max_examples=40)
@given(st.lists(st.integers(0, 12), min_size=1, max_size=60), st.integers(1, 8))
def test_where_all_blocks_cost_the_same_greedy_dual_size_is_lru(
    objects: list[int], capacity: int
) -> None:
    flat = [PlainRequest((label,), BLOCK_TOKENS + 1, BLOCK_TOKENS + 1) for label in objects]
    setting = setting_of(flat, capacity, BLOCK_TOKENS, cost=Cost(0.5, 0.0))
    lru = _replay("lru", flat, setting, False)
    assert _replay("greedy-dual-size", flat, setting, False) == lru


class Operation(NamedTuple):
    """On a heap of eight blocks."""

    name: str
    block: int
    primary: float
    tie: int


OPERATIONS = st.builds(
    Operation,
    st.sampled_from(["push", "push", "pop", "remove", "update"]),
    st.integers(0, 7),
    st.sampled_from([0.0, 1.0, 2.5]),
    st.integers(0, 3),
)


@settings(max_examples=150)
@given(st.lists(OPERATIONS, max_size=40))
def test_a_heap_gives_the_smallest_key_whatever_was_done_to_it(done: list[Operation]) -> None:
    """Even blocks belong to heap 0, odd ones to heap 1."""
    heap = new_heap(8, heaps=2)
    heap.heap[1::2] = 1
    inside: set[int] = set()
    for operation in done:
        block, which = operation.block, operation.block % 2
        if operation.name == "push" and block not in inside:
            push(heap, block)
            inside.add(block)
        elif operation.name == "remove" and block in inside:
            take_out(heap, block)
            inside.remove(block)
        elif operation.name == "update":
            update(heap, block, operation.primary, operation.tie)
        elif operation.name == "pop":
            mine = {block for block in inside if block % 2 == which}
            popped = pop(heap, which)
            inside.discard(popped)
            assert (popped == NONE) == (not mine)
            assert not any(precedes(heap, block, popped) for block in mine)
        _is_a_heap(heap, inside)


def _is_a_heap(heap: Heap, inside: set[int]) -> None:
    assert {block for block in range(8) if heap.place[block] != NONE} == inside
    for which, row in enumerate(heap.blocks):
        blocks = [int(block) for block in row[: heap.size[which]]]
        assert set(blocks) == {block for block in inside if block % 2 == which}
        for place, block in enumerate(blocks):
            assert heap.place[block] == place
            assert place == ROOT or not precedes(heap, block, blocks[(place - 1) // 2])
