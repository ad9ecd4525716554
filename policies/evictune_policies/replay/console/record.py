"""A replay's result as the plain object that `--json` prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evictune_policies.replay import yardsticks
from evictune_policies.replay.simulation.result import Result

QUANTILES = {"p25": 0.25, "p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}


def record(result: Result, xis: Sequence[int]) -> dict[str, Any]:
    """The object, with TEL and the share of requests above each of these xi (tokens)."""
    return {
        "policy": result.policy,
        "params": {"xi_tokens": result.xi_tokens, "q_hat_tokens": result.q_hat_tokens},
        "capacity_blocks": result.capacity_blocks,
        "block_tokens": result.block_tokens,
        "requests": result.requests,
        "hit_ratio": yardsticks.hit_ratio(result),
        "fidelity": result.fidelity,
        "uncached_tokens": {
            **{name: yardsticks.uncached_quantile(result, q) for name, q in QUANTILES.items()},
            "mean": yardsticks.uncached_mean(result),
        },
        "tel_tokens": {str(xi): yardsticks.tel(result, xi) for xi in xis},
        "share_above": {str(xi): yardsticks.share_above(result, xi) for xi in xis},
        "recomputed_tokens": result.recomputed_tokens,
        "seconds": result.seconds,
    }
