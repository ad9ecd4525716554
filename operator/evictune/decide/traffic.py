"""A coarse fingerprint of the traffic: under which load of an engine a value was tried.

It must not move when xi does, or every change would look like new traffic. The length of a prompt,
cached or not, does not depend on xi. The rate of requests does where clients wait for an answer
before they ask again: by less than the range that counts as alike here.
"""

from __future__ import annotations

import re

from evictune.api.observation import Interval, Observation, number_of
from evictune.api.policy import EvictionPolicy

# Two loads are alike while both of these ratios are smaller.
RATE_RATIO = 4.0
PROMPT_RATIO = 1.5

_TEXT = re.compile(r"^([0-9.]+|\?) requests/s per engine, ([0-9.]+|\?) tokens a prompt$")


def fingerprint(policy: EvictionPolicy, observation: Observation) -> str:
    """Such as "6.6 requests/s per engine, 420 tokens a prompt"; ? where unknown."""
    ttft, prompt = observation.ttft, observation.prompt_tokens_per_request
    rate = None
    if isinstance(ttft, Interval):
        rate = ttft.requests / (ttft.seconds or policy.spec.slo.ttft.window)
    # More replicas for more requests are the same traffic to each of them.
    rate = rate and rate / max(1, len(observation.engines))
    tokens = number_of(prompt)
    return f"{_show(rate)} requests/s per engine, {_show(tokens)} tokens a prompt"


def alike(one: str, other: str) -> bool:
    """Whether two fingerprints are of like traffic. What is unknown is taken to be alike."""
    first, second = _TEXT.match(one), _TEXT.match(other)
    if not first or not second:
        return True
    return _close(first[1], second[1], RATE_RATIO) and _close(first[2], second[2], PROMPT_RATIO)


def _show(value: float | None) -> str:
    if value is None:
        return "?"
    return f"{value:.0f}" if value >= 100 else f"{value:.2f}"


def _close(one: str, other: str, ratio: float) -> bool:
    if "?" in (one, other):
        return True
    low, high = sorted((float(one), float(other)))
    return high <= low * ratio
