"""decide in a loop around a toy engine: it finds the xi that serves best, and then leaves it."""

from __future__ import annotations

import itertools

import pytest
from evictune.api.knobs import KnobValues
from evictune.api.policy import EvictionPolicy
from evictune.api.reasons import Reason
from evictune.decide import decide

from tests.support.plant import Load, Plant
from tests.support.situations import make_policy

PACE = {"interval": "1s", "settle": "4s", "knobTTL": "2m"}
STEPS = (Reason.INTENDED, Reason.KEPT, Reason.NO_DIFFERENCE, Reason.REVERTED)


def _policy(threshold: str, quantile: str = "0.95", cooldown: str = "1s") -> EvictionPolicy:
    slo = {"quantile": quantile, "threshold": threshold, "window": "10s", "minRequests": 40}
    return make_policy(slo={"ttft": slo}, behavior={**PACE, "cooldown": cooldown})


def _tail_with(load: Load, values: KnobValues) -> float:
    """The tail in steady state with values that nobody turns."""
    plant = Plant(_policy("300ms"), load)
    plant.pool.turn(values)
    plant._due = float("inf")
    plant.run(60)
    return plant.tail(30)


def _best_tail(load: Load) -> float:
    return min(_tail_with(load, KnobValues(xi, 60)) for xi in (96, 192, 352, 512, 736, 1024, 1440))


def test_the_plant_shows_the_cliff() -> None:
    """A xi that is too small, or none, is stock LRU: what the loop has to find its way about."""
    stock = _tail_with(Load(3), KnobValues(None))
    assert _tail_with(Load(3), KnobValues(256, 60)) < 0.3 * stock
    assert _tail_with(Load(5), KnobValues(64, 60)) > 0.8 * stock
    assert _tail_with(Load(3), KnobValues(4096, 60)) > 0.8 * stock


def test_the_first_change_meets_the_target_and_nothing_moves_any_more() -> None:
    plant = Plant(_policy("180ms"), Load(3))
    plant.run(150)
    assert [record.reason for record in plant.changes(*STEPS)] == [Reason.INTENDED, Reason.KEPT]
    assert plant.tail(60) <= 0.18
    assert plant.memory.regime is not None
    assert plant.memory.regime.name is Reason.HEALTHY


@pytest.mark.parametrize(("threshold", "quantile"), [("165ms", "0.97"), ("300ms", "0.99")])
def test_more_conversations_come_and_another_xi_is_found(threshold: str, quantile: str) -> None:
    plant = Plant(_policy(threshold, quantile), Load(3))
    plant.run(45)
    first = plant.memory.applied
    plant.load(Load(5))
    plant.run(60)
    second = plant.memory.applied
    assert first is not None
    assert second is not None
    assert (second.values.xi_tokens or 0) > (first.values.xi_tokens or 0)
    assert len(plant.changes(Reason.INTENDED)) <= 4
    assert plant.tail(20) <= 1.15 * _best_tail(Load(5))


@pytest.mark.parametrize("conversations", [3, 5])
def test_noise_moves_nothing_for_long(conversations: int) -> None:
    """Each time to first token off by 15 %: the search ends all the same, near the best."""
    plant = Plant(_policy("180ms"), Load(conversations), noise=0.15)
    plant.run(250)
    assert len(plant.changes(Reason.INTENDED)) <= 8
    late = [record for record in plant.changes(*STEPS) if record.time > plant.now - 60]
    assert late == []
    assert plant.tail(60) <= 1.5 * _best_tail(Load(conversations))


def test_a_target_out_of_reach_is_said_and_the_best_stays() -> None:
    plant = Plant(_policy("100ms"), Load(5))
    plant.run(300)
    assert plant.changes(Reason.EXHAUSTED)
    assert plant.decisions[-1].holds[0][0] is Reason.EXHAUSTED
    late = [record for record in plant.changes(*STEPS) if record.time > plant.now - 150]
    assert late == []
    assert plant.tail(60) <= 1.15 * _best_tail(Load(5))


def test_where_lru_is_already_best_nothing_is_changed() -> None:
    """Everything fits: no cached block is evicted, and the target is met, or is out of reach."""
    for threshold in ("900ms", "40ms"):
        plant = Plant(_policy(threshold), Load(2, one_shots=0), capacity_tokens=64_000)
        plant.run(60)
        assert plant.changes(Reason.INTENDED) == []
        assert plant.pool.values.stock


def test_prompts_that_nobody_repeats_end_the_search_at_stock_lru() -> None:
    """Blocks are evicted, and no eviction order helps: a few tries, and back."""
    plant = Plant(_policy("120ms"), Load(900, document=400, growth=0, one_shots=0))
    plant.run(300)
    assert 1 <= len(plant.changes(Reason.INTENDED)) <= 6
    assert plant.pool.values.stock
    late = [record for record in plant.changes(*STEPS) if record.time > plant.now - 150]
    assert late == []


def test_changes_keep_their_distance() -> None:
    plant = Plant(_policy("100ms", cooldown="40s"), Load(5))
    plant.run(300)
    begun = [
        record.time
        for record in plant.changes(Reason.INTENDED)
        if "Restoring" not in record.message
    ]
    assert len(begun) >= 2
    assert min(later - earlier for earlier, later in itertools.pairwise(begun)) >= 40


def test_the_document_is_renewed_and_never_runs_out() -> None:
    plant = Plant(_policy("180ms"), Load(3))
    plant.run(200)
    revisions = {each.revision for decision in plant.decisions for each in decision.effects}
    assert revisions == {1}
    assert plant.document is not None
    assert plant.document.expires > plant.now + 50


def test_the_same_history_gives_the_same_decision() -> None:
    plant = Plant(_policy("180ms"), Load(3))
    plant.run(10)
    arguments = (plant.policy, plant.memory, plant.observe(), plant.now)
    assert decide(*arguments) == decide(*arguments)
