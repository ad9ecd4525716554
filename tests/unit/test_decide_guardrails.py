"""Each guardrail holds with its reason, and lets pass what it should."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from evictune.api.decision import DecisionRecord, Memory, Quarantined, RegimeState, WriteKnobs
from evictune.api.knobs import STOCK_LRU, KnobValues
from evictune.api.observation import Observation, TargetState, Unknown, Value
from evictune.api.reasons import Reason
from evictune.decide import decide

from tests.support.situations import (
    NOW,
    XI_512,
    XI_1024,
    applied,
    following,
    make_engine,
    make_policy,
    observe,
    reasons,
    ttft,
)


def _holds(
    observation: Observation, memory: Memory | None = None, **spec: Any
) -> tuple[list[Reason], Any]:
    decision = decide(make_policy(**spec), memory or Memory(), observation, NOW)
    if decision.holds:
        assert decision.memory.pending is None
    return reasons(decision.holds), decision


def test_nothing_holds_a_first_change_back() -> None:
    holds, decision = _holds(observe())
    assert holds == []
    assert decision.effects == (WriteKnobs(1, XI_512, 600.0),)
    assert decision.memory.pending.change_to == XI_512
    assert decision.memory.last_change_time == NOW
    assert reasons(decision.audit) == [Reason.REGIME_CHANGED, Reason.INTENDED]


@pytest.mark.parametrize(
    ("reason", "spec", "fields"),
    [
        (Reason.SUSPENDED, {"suspend": True}, {}),
        (Reason.OBSERVE_ONLY, {"mode": "Observe"}, {}),
        (Reason.RECOMMEND_ONLY, {"mode": "Recommend"}, {}),
        (Reason.CONFLICT, {}, {"conflict": "policy older has the same target"}),
        (Reason.POLICY_NOT_ACTIVE, {}, {"engines": (make_engine(None, None),)}),
        (Reason.POLICY_NOT_ACTIVE, {}, {"engines": (make_engine(), make_engine(XI_512, 4))}),
        (
            Reason.ROLLOUT_IN_PROGRESS,
            {},
            {"target": TargetState(True, 2, 1, rollout_in_progress=True)},
        ),
    ],
)
def test_held_whatever_is_wanted(
    reason: Reason, spec: dict[str, Any], fields: dict[str, Any]
) -> None:
    holds, decision = _holds(observe(**fields), **spec)
    assert holds == [reason]
    assert decision.effects == ()


def test_all_that_hold_are_told_in_order() -> None:
    holds, _ = _holds(observe(conflict="taken"), suspend=True, mode="Recommend")
    assert holds == [Reason.SUSPENDED, Reason.RECOMMEND_ONLY, Reason.CONFLICT]


def test_without_knobs_nothing_is_wanted() -> None:
    assert _holds(observe(), knobs=None)[0] == [Reason.NO_KNOBS]


def test_without_a_rate_of_prefill_there_is_nowhere_to_begin() -> None:
    unknown = Unknown(Reason.NOT_MEASURABLE, "no histogram of prefill time")
    assert _holds(observe(prefill_rate=unknown))[0] == [Reason.SAMPLES]


def test_cooldown_since_the_last_change() -> None:
    """cooldown 2m; settling, 90 s, is over."""
    assert _holds(observe(), Memory(last_change_time=NOW - 119))[0] == [Reason.COOLDOWN]
    assert _holds(observe(), Memory(last_change_time=NOW - 120))[0] == []


OVERFLOWING = {"evicted_protected": Value(300.0), "evicted_tel_safe": Value(200.0)}


def _steady(**fields: Any) -> Memory:
    regime = RegimeState(Reason.REUSE_LOST, NOW - 60, "")
    return applied(XI_1024, **{"regime": regime, **fields})


def test_that_nothing_was_seen_counts_after_a_whole_window() -> None:
    fresh = _steady(regime=RegimeState(Reason.REUSE_LOST, NOW - 59, ""))
    assert _holds(following(XI_1024), fresh)[0] == [Reason.SAMPLES]
    holds, decision = _holds(following(XI_1024), _steady())
    assert holds == []
    assert decision.memory.pending.change_to == XI_512


def test_a_verdict_has_just_waited_for_a_window() -> None:
    verdict = DecisionRecord("0a1b2c3d-1-1", NOW - 10, Reason.KEPT, "")
    memory = applied(XI_1024, decisions=(verdict,))
    assert _holds(following(XI_1024), memory)[0] == []


def test_a_verdict_does_not_count_once_another_regime_came_in_between() -> None:
    """The traffic shifted after it: the window is a mixture again."""
    reasons_since = (Reason.KEPT, *[Reason.REGIME_CHANGED] * 3)
    records = tuple(
        DecisionRecord(f"0a1b2c3d-{number}-1", NOW - 40 + number, reason, "")
        for number, reason in enumerate(reasons_since)
    )
    shifted = RegimeState(Reason.REUSE_LOST, NOW - 1, "")
    memory = applied(XI_512, regime=shifted, decisions=records)
    assert _holds(following(XI_512, **OVERFLOWING), memory)[0] == [Reason.SAMPLES]
    violated_all_along = replace(memory, decisions=records[:2])
    assert _holds(following(XI_512, **OVERFLOWING), violated_all_along)[0] == []


def test_that_protected_blocks_are_evicted_counts_after_a_whole_window() -> None:
    """Else the change is judged against a window that still holds requests from before."""
    shifted = RegimeState(Reason.REUSE_LOST, NOW - 59, "")
    early = applied(XI_512, regime=shifted)
    assert _holds(following(XI_512, **OVERFLOWING), early)[0] == [Reason.SAMPLES]
    lasting = applied(XI_512, regime=replace(shifted, since=NOW - 60))
    holds, decision = _holds(following(XI_512, **OVERFLOWING), lasting)
    assert holds == []
    assert decision.memory.pending.change_to.xi_tokens == 736
    left = decision.memory.quarantine[-1]
    assert (left.values, left.too_small, left.ttft) == (XI_512, True, 0.6)


def test_a_few_protected_blocks_of_ended_conversations_are_no_overflow() -> None:
    few = {"evicted_protected": Value(40.0), "evicted_tel_safe": Value(460.0)}
    holds, decision = _holds(following(XI_1024, **few), _steady())
    assert decision.memory.pending.change_to == XI_512
    assert holds == []


def _left(values: KnobValues, **fields: Any) -> Quarantined:
    defaults: dict[str, Any] = {
        "fingerprint": "6.67 requests/s per engine, 420 tokens a prompt",
        "until": NOW + 100,
        "reason": Reason.REVERTED,
        "ttft": 0.65,
    }
    return Quarantined(values, **{**defaults, **fields})


@pytest.mark.parametrize(
    ("record", "xi"),
    [
        ({"too_small": True}, 1440),
        # Forgotten, or of other traffic: tried again.
        ({"too_small": True, "until": NOW - 1}, 736),
        ({"too_small": True, "fingerprint": "90 requests/s per engine, 420 tokens a prompt"}, 736),
    ],
)
def test_what_was_left_under_like_traffic_is_not_tried_again(
    record: dict[str, Any], xi: int
) -> None:
    lasting = RegimeState(Reason.REUSE_LOST, NOW - 60, "")
    left = (_left(KnobValues(736, 60), **record),)
    memory = applied(XI_512, regime=lasting, quarantine=left)
    _, decision = _holds(following(XI_512, **OVERFLOWING), memory)
    assert decision.memory.pending.change_to.xi_tokens == xi


def test_out_of_reach_is_said_once() -> None:
    memory = _steady(quarantine=(_left(KnobValues(736, 60), too_small=True),))
    holds, decision = _holds(following(XI_1024, ttft=ttft(0.4)), memory)
    assert holds == [Reason.EXHAUSTED]
    assert reasons(decision.audit) == [Reason.EXHAUSTED]
    assert "T-LRU with xi 1024" in decision.audit[0].message
    again = decide(make_policy(), decision.memory, following(XI_1024, ttft=ttft(0.4)), NOW + 10)
    assert reasons(again.holds) == [Reason.EXHAUSTED]
    assert again.audit == ()
    assert again.memory.pending is None


def test_a_regime_that_comes_and_goes_pushes_out_no_change() -> None:
    left = _left(KnobValues(736, 60), too_small=True, until=NOW + 9999)
    policy, memory = make_policy(), _steady(quarantine=(left,))
    for tick in range(40):
        reading = ttft(0.4 if tick % 2 else 0.31)
        memory = decide(policy, memory, following(XI_1024, ttft=reading), NOW + 61 * tick).memory
    decision = decide(policy, memory, following(XI_1024, ttft=ttft(0.4)), NOW + 61 * 39 + 60)
    told = reasons(decision.memory.decisions)
    assert told.count(Reason.REGIME_CHANGED) == 3
    assert told.count(Reason.EXHAUSTED) == 1


def test_the_bound_stands_in_the_way_of_what_is_wanted() -> None:
    bounds = {"tlru": {"xiTokens": {"min": 32, "max": 512}}}
    memory = applied(XI_512, regime=RegimeState(Reason.REUSE_LOST, NOW - 60, ""))
    holds, decision = _holds(following(XI_512, **OVERFLOWING), memory, knobs=bounds)
    assert holds == [Reason.AT_BOUND, Reason.EXHAUSTED]
    assert decision.memory.recommendation.target == XI_512
    assert decision.memory.recommendation.uncapped.xi_tokens == 736


def test_a_value_outside_new_bounds_is_brought_back_even_if_all_is_well() -> None:
    bounds = {"tlru": {"xiTokens": {"min": 32, "max": 400}}}
    holds, decision = _holds(following(XI_512, ttft=ttft(0.2)), applied(XI_512), knobs=bounds)
    assert holds == []
    pending = decision.memory.pending
    assert (pending.change_to, pending.reason) == (KnobValues(400, 60), Reason.AT_BOUND)


def test_recommendations_are_told_when_they_change() -> None:
    policy = make_policy(mode="Recommend")
    first = decide(policy, Memory(), observe(), NOW)
    assert reasons(first.audit) == [Reason.REGIME_CHANGED, Reason.RECOMMENDED]
    assert first.memory.recommendation is not None
    assert first.memory.recommendation.target == XI_512
    second = decide(policy, first.memory, observe(), NOW + 10)
    assert second.audit == ()
    slower = decide(policy, second.memory, observe(prefill_rate=Value(1400.0)), NOW + 20)
    assert reasons(slower.audit) == [Reason.RECOMMENDED]


def test_a_recommendation_says_what_prompts_bring_that_is_new() -> None:
    """1500 tokens a second for a minute, 30,000 of them computed again, over 400 prompts."""
    counted = observe(recomputed_tokens=Value(30_000.0))
    basis = decide(make_policy(mode="Recommend"), Memory(), counted, NOW).memory.recommendation
    assert basis is not None
    assert "a prompt brings 150 tokens that were never cached, more than qHat 60" in basis.basis
    known = observe(recomputed_tokens=Value(80_000.0))
    for seen in (known, observe()):
        told = decide(make_policy(mode="Recommend"), Memory(), seen, NOW).memory.recommendation
        assert told is not None
        assert "qHat" not in told.basis


def test_observe_recommends_nothing() -> None:
    _, decision = _holds(observe(), mode="Observe")
    assert decision.memory.recommendation is None


@pytest.mark.parametrize(
    "observation",
    [
        observe(0.2),
        observe(evicted_lru=Value(0.0)),
        observe(0.31),
        observe(ttft=Unknown(Reason.SOURCE_UNAVAILABLE, "timed out")),
        observe(waiting=Value(9.0), queue_time=Value(0.4)),
        observe(kv_usage=Value(1.0), waiting=Value(184.0), preemptions=Value(4.0)),
    ],
    ids=["healthy", "no-reuse", "borderline", "unknown", "queue", "capacity"],
)
def test_ten_ticks_where_eviction_is_not_the_cause_change_nothing(observation: Observation) -> None:
    memory = Memory()
    for tick in range(10):
        decision = decide(make_policy(), memory, observation, NOW + 10 * tick)
        assert decision.effects == ()
        memory = decision.memory
    assert memory == replace(memory, pending=None, applied=None, last_change_time=None)
    assert reasons(memory.decisions) == [Reason.REGIME_CHANGED]


def test_stock_lru_is_never_outside_the_bounds() -> None:
    bounds = {"tlru": {"xiTokens": {"min": 512, "max": 512}}}
    holds, decision = _holds(following(STOCK_LRU, ttft=ttft(0.2)), applied(STOCK_LRU), knobs=bounds)
    assert (holds, decision.memory.pending) == ([], None)
