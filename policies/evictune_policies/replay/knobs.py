"""A policy together with its parameters, and which of them a command line asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evictune_policies.algorithms.catalog import POLICIES
from evictune_policies.replay.simulation.result import Result


@dataclass(frozen=True)
class Knobs:
    """None: the policy does not depend on it. Lengths in tokens."""

    policy: str
    xi_tokens: int | None = None
    q_hat_tokens: int | None = None

    def __str__(self) -> str:
        parts = [self.policy]
        if self.xi_tokens is not None:
            parts.append(f"xi {self.xi_tokens:,}")
        if self.q_hat_tokens is not None:
            parts.append(f"q_hat {self.q_hat_tokens:,}")
        return ", ".join(parts)


def knobs_of(result: Result) -> Knobs:
    """What was in force in a replay."""
    return Knobs(result.policy, result.xi_tokens, result.q_hat_tokens)


def combinations(policies: Sequence[str], xis: Sequence[int], q_hats: Sequence[int]) -> list[Knobs]:
    """Every policy with every value of the parameters that it depends on.

    Raises ValueError where a policy needs a parameter of which no value is given.
    """
    return [
        Knobs(policy, xi, q_hat)
        for policy in policies
        for xi in _values(policy, "xi_tokens", "--xi", "8192", xis)
        for q_hat in _values(policy, "q_hat_tokens", "--qhat", "200", q_hats)
    ]


def _values(
    policy: str, parameter: str, flag: str, example: str, given: Sequence[int]
) -> Sequence[int | None]:
    if parameter not in POLICIES[policy].parameters:
        return [None]
    if not given:
        raise ValueError(f"{flag}: policy {policy} depends on it: write {flag} {example}")
    return list(given)
