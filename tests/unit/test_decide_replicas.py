"""Pods that come and go, and the administrator's switch over all policies."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from evictune.api.decision import Decision, Memory, Phase, Scale, WriteKnobs
from evictune.api.observation import Observation, TargetState
from evictune.api.policy import FleetMode
from evictune.api.reasons import Reason
from evictune.decide import decide
from evictune.decide.protocol import PATIENCE

from tests.support.situations import (
    BASELINE,
    NOW,
    XI_512,
    applied,
    following,
    make_pending,
    make_policy,
    observe,
    reasons,
    ttft,
)

# settle 30 s, then one window of 60 s.
REST = 90.0
ROLLING = TargetState(True, 2, 1, rollout_in_progress=True)


def _decide(memory: Memory, seen: Observation, now: float = NOW, **spec: Any) -> Decision:
    return decide(make_policy(**spec), memory, seen, now)


def _scaled(replicas: int, **fields: Any) -> Observation:
    return observe(target=TargetState(True, replicas, replicas), **fields)


# An autoscaler at work.


def test_a_target_seen_for_the_first_time_is_not_one_that_changed() -> None:
    decision = _decide(Memory(), _scaled(3))
    assert decision.memory.scale == Scale(3, None)
    assert decision.effects != ()


def test_replicas_that_changed_are_waited_for() -> None:
    memory = Memory(scale=Scale(2))
    changed = _decide(memory, _scaled(3))
    assert reasons(changed.holds) == [Reason.REPLICAS_CHANGED]
    assert "3 replicas are wanted" in changed.holds[0][1]
    assert changed.memory.scale == Scale(3, NOW)
    late = _decide(changed.memory, _scaled(3), NOW + REST - 1)
    assert reasons(late.holds) == [Reason.REPLICAS_CHANGED]
    warm = _decide(late.memory, _scaled(3), NOW + REST)
    assert warm.holds == ()
    assert warm.memory.pending is not None


def test_a_pod_that_was_replaced_is_waited_for_too() -> None:
    """The number stays, the cache is cold."""
    rolling = _decide(Memory(scale=Scale(2)), observe(target=ROLLING))
    assert reasons(rolling.holds) == [Reason.ROLLOUT_IN_PROGRESS]
    over = _decide(rolling.memory, _scaled(2), NOW + 10)
    assert reasons(over.holds) == [Reason.REPLICAS_CHANGED]
    assert _decide(over.memory, _scaled(2), NOW + REST).holds == ()


def test_an_autoscaler_that_never_rests_is_never_interfered_with() -> None:
    memory = Memory()
    for tick in range(100):
        now = NOW + 10 * tick
        decision = _decide(memory, _scaled(2 + tick // 8 % 2), now)
        memory = decision.memory
        assert tick < 8 or decision.effects == () or memory.pending is not None
    # One change was begun before the first scaling, and no other since.
    revision = memory.pending.revision if memory.pending else 0
    assert revision <= 1


def test_a_target_that_cannot_be_read_has_not_been_scaled_to_nothing() -> None:
    gone = replace(observe(), target=TargetState(False, problem=Reason.CLUSTER_UNAVAILABLE))
    assert _decide(Memory(scale=Scale(2)), gone).memory.scale == Scale(2)


def _settling(**fields: Any) -> Memory:
    baseline = replace(BASELINE, replicas=2, **fields)
    pending = make_pending(Phase.SETTLING, baseline=baseline)
    return Memory(pending=pending, last_change_time=NOW, scale=Scale(2))


def _after(replicas: int, estimate: float, **fields: Any) -> Observation:
    state = TargetState(True, replicas, replicas)
    return following(XI_512, 2, ttft=ttft(estimate), target=state, **fields)


def test_the_verdict_waits_until_new_replicas_are_warm() -> None:
    scaled = _decide(_settling(), _after(3, 3.0), NOW + 80)
    waiting = _decide(scaled.memory, _after(3, 3.0), NOW + REST)
    assert reasons(waiting.holds) == [Reason.REPLICAS_CHANGED]
    judged = _decide(waiting.memory, _after(3, 0.2), NOW + 80 + REST)
    assert reasons(judged.audit)[-1] is Reason.KEPT


def test_readings_of_other_replicas_tell_nothing_of_the_change() -> None:
    """Neither kept as a help nor taken back as a harm: it stays, unproven."""
    scaled = _decide(_settling(), _after(3, 0.9), NOW + 5)
    judged = _decide(scaled.memory, _after(3, 0.9), NOW + 5 + REST)
    assert reasons(judged.audit)[-1] is Reason.INCONCLUSIVE
    assert "there were 2 replicas, and are 3 now" in judged.audit[-1].message
    assert judged.memory.pending is None
    assert judged.memory.applied is not None
    assert judged.memory.applied.values == XI_512
    assert judged.memory.quarantine == ()


def test_readings_of_other_traffic_tell_nothing_of_the_change() -> None:
    quiet = "0.50 requests/s per engine, 420 tokens a prompt"
    judged = _decide(_settling(fingerprint=quiet), _after(2, 0.9), NOW + REST)
    assert reasons(judged.audit)[-1] is Reason.INCONCLUSIVE
    assert "the traffic was 0.50 requests/s per engine" in judged.audit[-1].message


def test_a_verdict_does_not_wait_for_ever() -> None:
    memory, end = _settling(), NOW + PATIENCE * REST
    now, tick = NOW, 0
    while now <= end:
        decision = _decide(memory, _after(2 + tick % 2, 0.9), now)
        assert decision.memory.pending is not None
        memory, now, tick = decision.memory, now + 60, tick + 1
    decision = _decide(memory, _after(3, 0.9), end + 1)
    assert decision.memory.pending is None
    assert reasons(decision.audit)[-1] is Reason.INCONCLUSIVE


# The fleet switch.


def test_fleet_suspend_is_suspend_on_every_policy() -> None:
    seen = observe(fleet=FleetMode.SUSPEND)
    decision = _decide(Memory(), seen)
    assert reasons(decision.holds) == [Reason.FLEET_SWITCH]
    assert "fleet.mode" in decision.holds[0][1]
    assert decision.effects == ()
    ready = decision.conditions[0]
    assert (ready.status, ready.reason) == (True, Reason.FLEET_SWITCH)


def test_fleet_suspend_keeps_what_is_in_force() -> None:
    low = following(XI_512, expires=NOW + 100, fleet=FleetMode.SUSPEND)
    assert _decide(applied(XI_512), low).effects == (WriteKnobs(1, XI_512, 600.0),)
    lost = following(XI_512, document=None, fleet=FleetMode.SUSPEND)
    assert _decide(applied(XI_512), lost).effects == ()


def test_fleet_suspend_ends_what_is_not_written_and_freezes_what_is() -> None:
    memory = Memory(pending=make_pending(), last_change_time=NOW)
    unwritten = _decide(memory, observe(fleet=FleetMode.SUSPEND))
    assert reasons(unwritten.audit)[-1] is Reason.ABANDONED
    frozen = _decide(memory, following(XI_512, 2, fleet=FleetMode.SUSPEND), NOW + 1000)
    assert frozen.memory.pending is not None
    assert reasons(frozen.holds) == [Reason.FLEET_SWITCH]


def test_fleet_recommend_lets_no_policy_write() -> None:
    decision = _decide(Memory(), observe(fleet=FleetMode.RECOMMEND))
    assert reasons(decision.holds) == [Reason.FLEET_SWITCH]
    assert reasons(decision.audit) == [Reason.REGIME_CHANGED, Reason.RECOMMENDED]
    assert decision.effects == ()
    assert decision.memory.recommendation is not None
    assert decision.memory.recommendation.target == XI_512
    low = following(XI_512, expires=NOW + 100, fleet=FleetMode.RECOMMEND)
    assert _decide(applied(XI_512), low).effects == ()
    pending = Memory(pending=make_pending(Phase.SETTLING), last_change_time=NOW)
    ended = _decide(pending, following(XI_512, 2, fleet=FleetMode.RECOMMEND))
    assert reasons(ended.audit)[-1] is Reason.ABANDONED
    assert "fleet.mode" in ended.audit[-1].message


@pytest.mark.parametrize("mode", ["Recommend", "Observe"])
def test_the_switch_lets_nobody_go_further_than_the_policy(mode: str) -> None:
    own = {"Recommend": Reason.RECOMMEND_ONLY, "Observe": Reason.OBSERVE_ONLY}[mode]
    for fleet in (FleetMode.AUTO, FleetMode.RECOMMEND):
        decision = _decide(Memory(), observe(fleet=fleet), mode=mode)
        assert reasons(decision.holds) == [own]
        assert decision.conditions[0].reason is Reason.READY
