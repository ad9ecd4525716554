"""PS-3: the arithmetic of T-LRU, and what it means for a controller. Field case 53.

What is kept, what counts as length, shared blocks: tests/unit/test_algorithms_lists.py for the
replay, tests/integration/test_plugin_order.py for the plugin in a real vLLM. Here: xi is not
monotonic, so a controller that raises xi "for more effect" ends at plain LRU.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from evictune.api.knobs import KnobValues

from tests.support.fake_engines import FAST, SLOW, Load
from tests.support.loop_case import LoopCase, play

PACE = {"interval": "2m", "settle": "2m", "cooldown": "4m", "knobTTL": "1h"}


def kept_tokens(length: int, q_hat: int, xi: int) -> int:
    """B = max(0, L + q_hat - xi)."""
    return max(0, length + q_hat - xi)


@pytest.mark.parametrize(
    ("length", "xi", "kept"),
    [(2000, 1200, 1000), (300, 1200, 0), (2000, 0, 2200), (2000, 4000, 0)],
)
def test_t_lru_is_stock_lru_at_both_ends(length: int, xi: int, kept: int) -> None:
    assert kept_tokens(length, 200, xi) == kept
    safe = max(0, length - kept)
    assert (safe in (0, length)) is (xi != 1200 or length == 300)


def valley(low: int, high: int) -> Callable[[KnobValues], Load]:
    """T-LRU helps between two xi; below, more is protected than fits; above, all is safe."""

    def load(values: KnobValues) -> Load:
        xi = values.xi_tokens
        if xi is None:
            return SLOW
        if low <= xi <= high:
            return FAST
        region = "protected" if xi < low else "tel-safe"
        return Load(ttft=SLOW.ttft, computed=SLOW.computed, evicted=((region, 50.0),))

    return load


@pytest.mark.parametrize(("low", "high"), [(300, 600), (900, 1300), (2500, 4000)])
def test_the_search_finds_the_valley_from_either_side_and_stops(low: int, high: int) -> None:
    case = LoopCase(valley(low, high), behavior=PACE)

    async def scenario(case: LoopCase) -> None:
        await case.run(2 * 3600)
        assert case.xi is not None
        assert low <= case.xi <= high
        tries = case.changes()
        assert tries <= 8
        await case.run(3600)
        assert case.changes() == tries

    play(scenario, case)


@pytest.mark.parametrize("seen", ["protected", "tel-safe"])
def test_where_no_xi_helps_it_ends_within_the_bounds_and_at_stock_lru(seen: str) -> None:
    def nowhere(values: KnobValues) -> Load:
        evicted = ((seen if values.xi_tokens else "lru", 50.0),)
        return Load(ttft=SLOW.ttft, computed=SLOW.computed, evicted=evicted)

    case = LoopCase(nowhere, behavior=PACE)

    async def scenario(case: LoopCase) -> None:
        await case.run(3 * 3600)
        assert case.condition("SLOMet")[:2] == ("False", "TargetOutOfReach")
        assert case.xi is None, "nothing was gained: back to what was"
        for document in case.documents():
            assert 32 <= document["default"].get("xiTokens", 32) <= 4096

    play(scenario, case)
