"""The eviction order on vLLM's own classes against the definition, and against stock."""

from __future__ import annotations

import pytest
from evictune_policies.engine.knobs import Knobs
from evictune_policies.engine.tlru import TailOptimizedLRU

from tests.support.eviction_walk import (
    MAX_LENGTH,
    Walk,
    Watched,
    free_order,
    reference_of,
    small_manager,
)

STEPS = 1500
LRU = (None, 0)
# Block boundaries and what lies between; nothing TEL-safe; everything.
NOTHING, ALL, ALL_AND_MORE = (0, 8), (MAX_LENGTH + 8, 8), (10**7, 200)
KNOBS = (LRU, LRU, (20, 8), (33, 8), (32, 7), (60, 0), (1, 0), NOTHING, ALL, ALL_AND_MORE)


def watch(
    policy_class: type[TailOptimizedLRU] = TailOptimizedLRU,
) -> tuple[Watched, TailOptimizedLRU]:
    """A small manager with the plugin in it, and the reference that follows."""
    manager = small_manager()
    reference = reference_of(manager)
    policy = policy_class(manager)
    policy.install()

    def change(xi: int | None, q_hat: int) -> None:
        policy.apply(Knobs() if xi is None else Knobs("t-lru", xi, q_hat))

    return Watched(manager, reference, change), policy


@pytest.mark.parametrize("seed", range(6))
def test_random_walks_follow_the_definition(seed: int) -> None:
    watched, policy = watch()
    walk = Walk(watched, seed, KNOBS)
    walk.run(STEPS)
    assert watched.reference is not None
    assert policy.evicted == watched.reference.evicted
    rare = {"reset", "change", "resume", "abort_preempted", "preempt_deferred", "lose_content"}
    assert rare <= walk.done.keys(), "the walk missed an operation: this test tests less"
    assert min(policy.evicted.values()) > 0


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("knobs", [LRU, (0, 8), (10**7, 8)], ids=["unset", "xi 0", "xi infinite"])
def test_order_is_that_of_stock(knobs: tuple[int | None, int], seed: int) -> None:
    stock = Walk(Watched(small_manager()), seed)
    stock.run(STEPS)
    watched, _ = watch()
    watched.change(*knobs)
    watched.reference = None
    ours = Walk(watched, seed)
    ours.run(STEPS)
    assert ours.trace == stock.trace
    assert ours.done == stock.done


def test_a_fresh_pool_is_in_the_order_of_stock() -> None:
    manager = small_manager()
    before = free_order(manager)
    TailOptimizedLRU(manager).install()
    assert free_order(manager) == before
