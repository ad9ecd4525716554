"""Seeded faults in the plugin: each must be seen by the comparison with the definition.

A comparison that lets one of them pass proves nothing about the order it was meant to check.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from types import ModuleType

import pytest
from evictune_policies.engine import regions, tlru
from evictune_policies.engine.knobs import Knobs

from tests.support.eviction_walk import MAX_LENGTH, Walk, Watched, reference_of, small_manager

# Module, what its source says, what the mutant says instead.
MUTATIONS: dict[str, tuple[ModuleType, str, str]] = {
    "regions in the wrong order": (
        tlru, "        safe, last = queue.regions", "        last, safe = queue.regions",
    ),
    "the last length, not the largest": (
        tlru, "if block.longest < length:", "if block.longest != length and length:",
    ),
    "length of the first holder only": (
        tlru, "if block.longest < length:", "if block.longest == 0:",
    ),
    "one block too many is TEL-safe": (
        tlru, "knobs.q_hat_tokens - knobs.xi_tokens + self._pool.hash_block_size",
        "knobs.q_hat_tokens - knobs.xi_tokens",
    ),
    "one block too few is TEL-safe": (
        tlru, "return ends_at >= block.longest + self", "return ends_at > block.longest + self",
    ),
    "rounding of a whole chain": (
        tlru, "(first - bound) // size + 1", "(first - bound + size - 1) // size + 1",
    ),
    "a preempted request counts as finished": (
        tlru, "        if not request.is_finished():\n", "        if False:\n",
    ),
    "a preempted request's blocks are not awaited": (
        tlru, "self._awaits.setdefault(request.request_id, set()).update(numbers)", "return",
    ),
    "free blocks are not sorted again after a change": (
        tlru, "            self._sort()\n", "            pass\n",
    ),
    "sorting again forgets the order of release": (
        tlru, "(block.freed_at << 32)", "0",
    ),
    "a block filled anew keeps its old length": (
        regions, "            taken.append(block)\n            block.longest = 0\n",
        "            taken.append(block)\n",
    ),
    "reset_prefix_cache leaves blocks in their regions": (
        tlru, "            self._queue.forget()\n", "",
    ),
}  # fmt: skip
SEEDS, STEPS = range(12), 600
KNOBS = ((None, 0), (20, 8), (33, 8), (32, 7), (60, 0), (MAX_LENGTH + 8, 8))


def _source(module: ModuleType) -> str:
    return inspect.getsource(module)


def _load(name: str, source: str, **replaced: object) -> ModuleType:
    """Run changed source as a module of its own; the original stays as it is."""
    module = ModuleType(name)
    sys.modules[name] = module  # dataclasses and the like look their module up
    try:
        exec(compile(source, name, "exec"), module.__dict__)
    finally:
        del sys.modules[name]
    module.__dict__.update(replaced)
    return module


def _mutant(mutation: str) -> type[tlru.TailOptimizedLRU]:
    changed, before, after = MUTATIONS[mutation]
    source = _source(changed)
    assert source.count(before) == 1, f"the source no longer says {before!r} once"
    module = _load("mutant", source.replace(before, after))
    if changed is regions:
        module = _load("mutant_tlru", _source(tlru), RegionQueue=module.RegionQueue)
    policy_class: type[tlru.TailOptimizedLRU] = module.TailOptimizedLRU
    return policy_class


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
    _walks(_load("unchanged", _source(tlru)).TailOptimizedLRU)


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_mutation_is_caught(mutation: str) -> None:
    policy_class = _mutant(mutation)
    with pytest.raises(AssertionError, match="definition"):
        _walks(policy_class)
