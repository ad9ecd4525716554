"""Seeded faults in the plugin: each must be seen by the comparison with the definition.

A comparison that lets one of them pass proves nothing about the order it was meant to check.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType

import pytest
from evictune_policies.engine import tlru
from evictune_policies.engine.knobs import Knobs

from tests.support.eviction_walk import MAX_LENGTH, Walk, Watched, reference_of, small_manager

# What the source says, and what the mutant says instead.
MUTATIONS: dict[str, tuple[str, str]] = {
    "regions in the wrong order": (
        "        safe, last = queue.regions", "        last, safe = queue.regions",
    ),
    "the last length, not the largest": (
        "if block.longest < length:", "if block.longest != length and length:",
    ),
    "length of the first holder only": (
        "if block.longest < length:", "if block.longest == 0:",
    ),
    "one block too many is TEL-safe": (
        "knobs.q_hat_tokens - knobs.xi_tokens + self._pool.hash_block_size",
        "knobs.q_hat_tokens - knobs.xi_tokens",
    ),
    "one block too few is TEL-safe": (
        "return ends_at >= block.longest + self", "return ends_at > block.longest + self",
    ),
    "rounding of a whole chain": (
        "(first - bound) // size + 1", "(first - bound + size - 1) // size + 1",
    ),
    "a preempted request counts as finished": (
        "        if not request.is_finished():\n", "        if False:\n",
    ),
    "a preempted request's blocks are not awaited": (
        "self._awaits.setdefault(request.request_id, set()).update(numbers)", "return",
    ),
    "free blocks are not sorted again after a change": (
        "            self._sort()\n", "            pass\n",
    ),
    "sorting again forgets the order of release": (
        "(block.freed_at << 32)", "0",
    ),
    "a block filled anew keeps its old length": (
        "                if block.content is content:\n", "                if True:\n",
    ),
    "reset_prefix_cache leaves blocks in their regions": (
        "            self._queue.forget()\n", "",
    ),
}  # fmt: skip
SEEDS, STEPS = range(12), 600
KNOBS = ((None, 0), (20, 8), (33, 8), (32, 7), (60, 0), (MAX_LENGTH + 8, 8))


def _load(source: str) -> type[tlru.TailOptimizedLRU]:
    """Run changed source as a module of its own; the original stays as it is."""
    module = ModuleType("mutant")
    exec(compile(source, "mutant", "exec"), module.__dict__)
    policy_class: type[tlru.TailOptimizedLRU] = module.TailOptimizedLRU
    return policy_class


def _mutant(mutation: str) -> type[tlru.TailOptimizedLRU]:
    before, after = MUTATIONS[mutation]
    source = inspect.getsource(tlru)
    assert source.count(before) == 1, f"the source no longer says {before!r} once"
    return _load(source.replace(before, after))


def _walk(policy_class: Callable[..., tlru.TailOptimizedLRU], seed: int) -> None:
    manager = small_manager()
    reference = reference_of(manager)
    policy = policy_class(manager)
    policy.install()

    def change(xi: int | None, q_hat: int) -> None:
        policy.apply(Knobs() if xi is None else Knobs("t-lru", xi, q_hat))

    Walk(Watched(manager, reference, change), seed, KNOBS).run(STEPS)


def _walks(policy_class: Callable[..., tlru.TailOptimizedLRU]) -> None:
    for seed in SEEDS:
        _walk(policy_class, seed)


def test_without_a_mutation_the_comparison_holds() -> None:
    _walks(_load(inspect.getsource(tlru)))


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_mutation_is_caught(mutation: str) -> None:
    policy_class = _mutant(mutation)
    with pytest.raises(AssertionError, match="definition"):
        _walks(policy_class)
