"""Ten thousand ticks at accelerated time: days of traffic that changes, pods and policies that come
and go, API servers that refuse. Memory stays as it was.
"""

from __future__ import annotations

import gc
import tracemalloc

import pytest
from evictune.api.knobs import KnobValues
from evictune.kube import ApiError

from tests.support.fake_engines import FAST, SLOW, Load
from tests.support.loop_case import EVENTS, NAMESPACE, POLICIES, LoopCase, play, policy_body

TICKS = 10_000
# Until every kind of thing that is remembered for a while has been remembered, and forgotten.
WARM_UP = 3_000
INTERVAL = 30.0
# What the decisions of one moment need more than those of another.
ALLOWED_BYTES = 150_000


class Days:
    """By day reuse is lost under stock LRU; by night nothing is amiss."""

    def __init__(self) -> None:
        self.tick = 0

    def __call__(self, values: KnobValues) -> Load:
        day = self.tick // 480 % 2 == 0
        return SLOW if day and values.stock else FAST


@pytest.mark.timeout(3600)
def test_memory_is_flat_over_ten_thousand_ticks() -> None:
    days = Days()

    async def scenario(case: LoopCase) -> None:
        kept = 0
        tracemalloc.start()
        try:
            for days.tick in range(TICKS):
                await _one(case, days.tick)
                if days.tick == WARM_UP:
                    kept = _bytes_in_use(case)
            grown = _bytes_in_use(case) - kept
        finally:
            tracemalloc.stop()
        assert "Kept" in case.told
        assert grown < ALLOWED_BYTES, f"{grown} bytes more after {TICKS - WARM_UP} ticks"

    play(scenario, LoopCase(days, pods=2))


async def _one(case: LoopCase, tick: int) -> None:
    """One tick of the policy; now and then something happens to the cluster."""
    if tick % 200 == 100:
        case.replace_pod(next(iter(case.engines)))
    if tick % 20 == 10:
        await _passing_policy(case, f"guest-{tick}")
    if tick % 97 == 50:
        case.api.fault = lambda method, path: ApiError(500, "InternalError", "etcd is away")
        with pytest.raises(ApiError):
            await case.tick()
        case.api.fault = lambda method, path: None
    await case.tick()
    case.now += INTERVAL


async def _passing_policy(case: LoopCase, name: str) -> None:
    """A policy that is made, looked at and deleted."""
    case.put_policy(policy_body(name, uid=f"uid-{name}"))
    await case.tick(name)
    del case.api.objects[f"{POLICIES}/{name}"]
    assert await case.tick(name) is None
    # As the scheduler does where it finds a policy gone.
    case.index.remove((NAMESPACE, name))
    case.metrics.forget((NAMESPACE, name))


def _bytes_in_use(case: LoopCase) -> int:
    """What Python holds now, without the in-memory API server's own records."""
    told = set(case.told)
    case.api.requests = [("POST", EVENTS, {"reason": reason}) for reason in sorted(told)]
    for path in [each for each in case.api.objects if each.startswith(EVENTS)]:
        del case.api.objects[path]
    case.outcomes.clear()
    gc.collect()
    return tracemalloc.get_traced_memory()[0]
