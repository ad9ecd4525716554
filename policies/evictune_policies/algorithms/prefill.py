"""What it costs to compute blocks again, for the policies that weigh it."""

from __future__ import annotations

from typing import NamedTuple


class Prefill(NamedTuple):
    """A prefill's seconds: linear * n + quadratic * n * (n + 2 * cached) / 2 for n new tokens."""

    linear: float
    quadratic: float
    block_tokens: int


def seconds(prefill: Prefill, cached_tokens: float, new_tokens: float) -> float:
    """Seconds to compute new tokens after cached ones."""
    pairs = new_tokens * (new_tokens + 2.0 * cached_tokens) / 2.0
    return prefill.linear * new_tokens + prefill.quadratic * pairs


def block_seconds(prefill: Prefill, depth: int) -> float:
    """Seconds to compute one block after `depth` cached ones: what the loss of a leaf costs.

    A leaf is evicted alone, and can only be hit where everything before it is in the pool.
    """
    return seconds(prefill, float(depth * prefill.block_tokens), float(prefill.block_tokens))
