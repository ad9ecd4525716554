"""Loads of an engine whose live requests hold the KV blocks, by its memory fraction."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from tests.support.engine_load import SLOW, Load
from tests.support.memory_world import MANIFEST, MemoryPod

# Three wait for eighty that run: a step of the fraction covers more than half of what they need.
SHORT = replace(
    SLOW,
    ttft=((0.08, 36.0), (1.4, 4.0)),
    kv_usage=0.97,
    running=40.0,
    waiting=1.5,
    preemptions=0.4,
    evicted=(("lru", 5.0),),
)
# Enough blocks: nothing waits, and the tail is met.
ENOUGH = replace(SHORT, ttft=((0.08, 40.0),), kv_usage=0.7, waiting=0.0, preemptions=0.0)


def short_of_blocks(pod: MemoryPod) -> Load:
    """Short, but the less so the larger the fraction."""
    more = float(pod.fraction - MANIFEST) / 0.02
    return replace(SHORT, preemptions=max(0.0, 0.4 - 0.15 * more))


def enough_from(fraction: str) -> object:
    """Short below a fraction, enough from it on."""
    least = Decimal(fraction)
    return lambda pod: ENOUGH if pod.fraction >= least else SHORT
