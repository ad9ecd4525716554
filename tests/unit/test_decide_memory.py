"""A change of the memory fraction from the shortage to its end, against played engines."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from evictune.api.decision import Memory
from evictune.api.observation import Value
from evictune.api.policy import EvictionPolicy
from evictune.api.reasons import Reason

from tests.support.memory_world import HEALTHY, HOLDING, MANIFEST, MemoryWorld, memory_policy

UP = Decimal("0.87")
STEPS = [
    Reason.INTENDED,
    Reason.ENGINE_RESTARTED,
    Reason.CANARY_PASSED,
    Reason.ENGINE_RESTARTED,
    Reason.KEPT,
]


def test_a_lasting_shortage_is_one_step_up_engine_by_engine_and_then_the_default() -> None:
    world = MemoryWorld(pods=2)
    world.run(2000, until=Reason.KEPT)
    assert world.told == STEPS
    assert world.fractions == ["0.87", "0.87"]
    assert [pod.restarts for pod in world.pods] == [1, 1]
    assert world.document is not None
    assert world.document.values.fraction == UP
    assert world.document.pods == {}
    assert world.memory.applied is not None
    assert world.memory.applied.values.fraction == UP


def test_the_last_pod_begins_and_the_default_stays_until_all_have_it() -> None:
    world = MemoryWorld(pods=3)
    world.run(2000, until=Reason.INTENDED)
    assert world.document is not None
    assert list(world.document.pods) == ["chat-8b-2"]
    assert world.document.values.fraction is None
    world.run(2000, until=Reason.CANARY_PASSED)
    assert world.fractions == ["0.85", "0.85", "0.87"]
    world.run(2000, until=Reason.KEPT)
    assert world.fractions == ["0.87"] * 3
    assert len(world.asked) == 3


def test_a_shortage_of_a_moment_is_no_reason() -> None:
    world = MemoryWorld()
    for _ in range(20):
        world.run(60)
        world.readings = HEALTHY
        world.run(150)
        world.readings = dict(HOLDING)
    assert Reason.INTENDED not in world.told
    assert not world.asked


def test_a_look_without_it_does_not_end_a_shortage() -> None:
    world = MemoryWorld()
    waited = 0.0
    while Reason.INTENDED not in world.told and waited < 3600:
        world.run(60)
        world.readings = HEALTHY
        world.run(30)
        world.readings = dict(HOLDING)
        waited += 90
    settle = world.policy.spec.behavior.settle + world.policy.spec.slo.ttft.window
    assert settle <= waited <= settle + 180


def test_the_step_says_how_many_blocks_it_buys() -> None:
    world = MemoryWorld()
    world.run(2000, until=Reason.INTENDED)
    (intended,) = [each for each in world.records if each.reason is Reason.INTENDED]
    # 4,500 blocks at 0.85: in proportion, 105 more; without the weights it will be 200.
    assert "at least 105 KV blocks more in each engine (2.3%)" in intended.message
    assert "of what waiting requests need" in intended.message


def test_a_policy_made_anew_begins_beyond_what_failed_under_the_one_before() -> None:
    world = MemoryWorld()
    world.starts_fail = {UP}
    world.run(2000, until=Reason.ENGINE_FAILED)
    failed = max(pod.tried_at for pod in world.pods)
    world.memory, world.document = Memory(), None
    for pod in world.pods:
        pod.revision = 0  # gone with the document; what was dropped stands in the pod's folder
    world.run(2000, until=Reason.INTENDED)
    assert world.document is not None
    assert world.document.revision > failed


def test_a_start_that_fails_goes_back_and_is_not_tried_again() -> None:
    world = MemoryWorld()
    world.starts_fail = {UP}
    world.run(2 * 3600)
    assert world.told.count(Reason.ENGINE_FAILED) == 1
    assert world.told.count(Reason.INTENDED) == 2
    assert world.told[-1] is Reason.REVERTED
    assert world.fractions == ["0.85", "0.85"]
    assert world.pods[0].restarts == 0, "the peer is not touched"
    (left,) = world.memory.quarantine
    assert (left.values.fraction, left.reason) == (UP, Reason.ENGINE_FAILED)
    assert Reason.QUARANTINED in world.held


def test_a_fraction_too_low_to_start_bars_lower_ones_only() -> None:
    world = MemoryWorld()
    world.run(2000, until=Reason.KEPT)
    world.readings = HEALTHY
    low = Decimal("0.50")
    world.starts_fail = {low}
    world.policy = within("0.50", "0.50")
    world.run(2000)
    assert [each.values.fraction for each in world.memory.quarantine] == [low]
    asked = len(world.asked)
    world.policy = within("0.45", "0.45")
    world.run(2000)
    assert Reason.QUARANTINED in world.held
    assert len(world.asked) == asked
    assert world.fractions == ["0.87", "0.87"]
    world.policy = within("0.91", "0.94")
    world.run(2000)
    assert world.fractions == ["0.91", "0.91"]


def within(smallest: str, largest: str) -> EvictionPolicy:
    """A policy of other bounds than before."""
    limits = {"min": smallest, "max": largest, "step": "0.02"}
    often = {"policy": "WhenRedundant", "maxPerDay": 9}
    return memory_policy(often, knobs={"gpuMemoryUtilization": limits})


def test_an_engine_that_dies_minutes_later_counts_and_what_was_changed_goes_back() -> None:
    world = MemoryWorld(pods=3)
    world.dies_after = {UP: 180.0}
    world.run(3600)
    assert world.told.count(Reason.ENGINE_FAILED) == 1
    assert world.told[-1] is Reason.REVERTED
    assert world.fractions == ["0.85"] * 3
    assert world.document is not None
    assert world.document.values.fraction is None


def test_an_engine_that_dies_after_the_change_was_kept_counts_too() -> None:
    world = MemoryWorld()
    world.run(2000, until=Reason.KEPT)
    world.readings = HEALTHY
    world.run(600)
    world.crash(0)
    world.run(1200)
    assert world.told[-1] is Reason.REVERTED
    assert world.fractions == ["0.85", "0.85"]
    assert [each.reason for each in world.memory.quarantine] == [Reason.ENGINE_FAILED]
    assert world.memory.trial is None
    (failed,) = [each for each in world.records if each.decision_id.endswith(".late")]
    assert "ended once with memory fraction 0.87" in failed.message


def test_a_crash_long_after_is_no_word_about_the_fraction() -> None:
    world = MemoryWorld()
    world.run(2000, until=Reason.KEPT)
    world.readings = HEALTHY
    world.run(3700)
    world.crash(0)
    world.run(1200)
    assert world.told == STEPS
    assert world.fractions == ["0.87", "0.87"]


@pytest.mark.parametrize(
    ("field", "reason"), [("worse", Reason.REVERTED), ("useless", Reason.NO_DIFFERENCE)]
)
def test_a_canary_that_is_no_better_goes_back(field: str, reason: Reason) -> None:
    world = MemoryWorld()
    setattr(world, field, {UP})
    world.run(1500)
    assert world.fractions == ["0.85", "0.85"]
    assert world.told[:3] == [Reason.INTENDED, Reason.ENGINE_RESTARTED, reason]
    assert [each.reason for each in world.memory.quarantine] == [reason]
    assert world.pods[0].restarts == 0


HELD: dict[str, tuple[dict[str, Any], dict[str, Any], int, Reason]] = {
    "never": ({"policy": "Never"}, {}, 2, Reason.DISRUPTION_NEVER),
    "one engine": ({"policy": "WhenRedundant"}, {}, 1, Reason.NOT_REDUNDANT),
    "too few stay": ({"policy": "WhenRedundant", "minReady": 2}, {}, 2, Reason.MIN_READY),
    "outside the window": (
        {"policy": "Allow", "windows": [{"cron": "0 2 1 1 *", "duration": "1h"}]},
        {}, 2, Reason.OUTSIDE_WINDOW,
    ),
    "mode": ({"policy": "Allow"}, {"mode": "Recommend"}, 2, Reason.RECOMMEND_ONLY),
    "suspended": ({"policy": "Allow"}, {"suspend": True}, 2, Reason.SUSPENDED),
}  # fmt: skip


@pytest.mark.parametrize("name", HELD)
def test_no_engine_restarts_where_it_may_not(name: str) -> None:
    disruption, spec, pods, reason = HELD[name]
    world = MemoryWorld(pods, memory_policy(disruption, **spec))
    world.run(3600)
    assert not world.asked
    assert reason in world.held
    assert world.memory.pending is None
    if reason is not Reason.SUSPENDED:
        assert world.memory.recommendation is not None
        assert world.memory.recommendation.target.fraction == UP


def test_the_only_engine_restarts_where_that_is_allowed() -> None:
    world = MemoryWorld(1, memory_policy({"policy": "Allow"}))
    world.run(2000, until=Reason.KEPT)
    assert world.told[-1] is Reason.KEPT
    assert world.fractions == ["0.87"]


def test_outside_a_window_it_is_said_when_the_next_one_opens() -> None:
    window = {"cron": "0 12 * * *", "duration": "1h", "timeZone": "Europe/Berlin"}
    world = MemoryWorld(2, memory_policy({"policy": "Allow", "windows": [window]}))
    world.run(600)
    assert world.last is not None
    # 2027-01-15, 08:00 UTC; noon in Berlin is 11:00 UTC.
    assert dict(world.last.holds)[Reason.OUTSIDE_WINDOW].endswith("opens 2027-01-15T11:00:00Z")
    world.run(3 * 3600 + 900)
    assert world.asked
    assert world.asked[0][1] >= 1_800_010_800.0


def test_a_storm_is_no_time_to_take_an_engine_away() -> None:
    storm = {"kv_usage": Value(1.0), "running": Value(72.0), "waiting": Value(190.0)}
    for policy, asked in (("WhenRedundant", False), ("Allow", True)):
        world = MemoryWorld(2, memory_policy({"policy": policy}, behavior={"tolerance": "0"}))
        world.readings = {**storm, "preemptions": Value(6.0)}
        world.run(900)
        assert bool(world.asked) is asked
        assert asked or Reason.STORM in world.held


def test_a_step_that_covers_next_to_nothing_is_not_worth_a_restart() -> None:
    world = MemoryWorld(2, memory_policy({"policy": "WhenRedundant"}))
    world.readings = {"kv_usage": Value(1.0), "running": Value(72.0), "waiting": Value(60.0)}
    world.run(900)
    assert not world.asked
    assert Reason.GAIN_TOO_SMALL in world.held


def test_so_many_changes_a_day_and_no_more() -> None:
    world = MemoryWorld(2, memory_policy({"policy": "WhenRedundant", "maxPerDay": 2}))
    world.run(3 * 3600)
    assert world.told.count(Reason.KEPT) == 2
    assert world.fractions == ["0.89", "0.89"]
    assert Reason.MAX_PER_DAY in world.held
    world.now += 22 * 3600
    world.run(2 * 3600)
    assert world.told.count(Reason.KEPT) > 2


def test_never_beyond_the_bound_and_that_is_said() -> None:
    bounds = {"gpuMemoryUtilization": {"min": "0.80", "max": "0.87", "step": "0.02"}}
    world = MemoryWorld(2, memory_policy(knobs=bounds))
    world.run(3600)
    assert world.fractions == ["0.87", "0.87"]
    assert Reason.AT_BOUND in world.held
    assert world.memory.recommendation is None


def test_a_lowered_bound_is_a_step_down() -> None:
    world = MemoryWorld(2)
    world.run(2000, until=Reason.KEPT)
    knobs = {"gpuMemoryUtilization": {"min": "0.80", "max": "0.86", "step": "0.02"}}
    world.policy = memory_policy(knobs=knobs)
    world.run(2000, until=Reason.KEPT)
    assert world.fractions == ["0.86", "0.86"]


def test_another_policys_restart_comes_first() -> None:
    world = MemoryWorld(2)
    world.elsewhere = "an engine of policy other/chat is restarting"
    world.run(1200)
    assert not world.asked
    assert Reason.RESTART_ELSEWHERE in world.held
    world.elsewhere = ""
    world.run(60)
    assert len(world.asked) == 1


def test_a_rollout_pauses_the_change_between_two_engines() -> None:
    world = MemoryWorld(3)
    world.run(2000, until=Reason.CANARY_PASSED)
    world.target = {"replacing": True, "rollout_in_progress": True}
    world.run(900)
    assert len(world.asked) == 1
    assert Reason.ROLLOUT_IN_PROGRESS in world.held
    world.target = {}
    world.run(1200, until=Reason.KEPT)
    assert world.fractions == ["0.87"] * 3


def test_a_rollout_that_replaces_the_canary_ends_the_change() -> None:
    world = MemoryWorld(2)
    world.run(2000, until=Reason.ENGINE_RESTARTED)
    world.document = None
    world.replace_pod(1)
    world.run(600, until=Reason.REVERTED)
    assert world.told[2:] == [Reason.ABANDONED, Reason.INTENDED, Reason.REVERTED]
    assert world.fractions == ["0.85", "0.85"]
    assert not world.memory.quarantine, "nobody has judged the fraction"


def test_a_document_deleted_in_the_middle_is_written_again() -> None:
    world = MemoryWorld(2)
    world.run(2000, until=Reason.CANARY_PASSED)
    world.document = None
    world.run(2000, until=Reason.KEPT)
    assert world.fractions == ["0.87", "0.87"]
    assert [pod.restarts for pod in world.pods] == [1, 1]


def test_a_change_that_is_suspended_goes_on_where_it_was() -> None:
    world = MemoryWorld(3)
    world.run(2000, until=Reason.CANARY_PASSED)
    going, world.policy = world.policy, memory_policy(suspend=True)
    world.run(1200)
    assert len(world.asked) == 1
    assert world.fractions == ["0.85", "0.85", "0.87"]
    world.policy = going
    world.run(1200, until=Reason.KEPT)
    assert world.fractions == ["0.87"] * 3


def test_never_in_the_middle_takes_back_without_a_restart() -> None:
    world = MemoryWorld(3)
    world.run(2000, until=Reason.CANARY_PASSED)
    world.policy = memory_policy({"policy": "Never"}, knobs={"gpuMemoryUtilization": None})
    world.run(900)
    assert world.memory.pending is None
    assert len(world.asked) == 1
    assert world.document is not None
    assert world.document.pods == {}
    (reverted,) = [each for each in world.records if each.reason is Reason.REVERTED]
    assert "of pod chat-8b-2 when it restarts" in reverted.message


def test_engines_of_an_older_plugin_are_named() -> None:
    world = MemoryWorld(2)
    seen = world.observe()
    assert all(pod.memory is not None for pod in seen.pods)
    world.readings["pods"] = tuple(type(pod)(**{**vars(pod), "memory": None}) for pod in seen.pods)
    world.run(600)
    assert not world.asked
    assert Reason.MEMORY_NOT_ELIGIBLE in world.held


def test_live_knobs_come_before_restarts() -> None:
    """Prompts prefilled again are a matter of the order of eviction: no engine restarts for it."""
    world = MemoryWorld(2)
    world.readings = {"kv_usage": Value(0.3)}
    world.run(1200)
    assert Reason.INTENDED in world.told
    assert not world.asked
    assert {pod.fraction for pod in world.pods} == {MANIFEST}


def test_what_a_pod_dropped_long_ago_does_not_count_again() -> None:
    """The plugin shows the last attempt until the next start: its revision tells which it was."""
    world = MemoryWorld()
    world.starts_fail = {UP}
    world.run(3600)
    assert world.pods[1].state == "dropped"
    world.starts_fail = set()
    world.now += 8 * 86400
    world.run(3600, until=Reason.KEPT)
    assert world.told.count(Reason.ENGINE_FAILED) == 1
    assert world.fractions == ["0.87", "0.87"]


def test_an_engine_that_does_not_come_back_has_failed() -> None:
    world = MemoryWorld()
    world.load_seconds = 1e6
    world.run(2 * 3600)
    assert world.told == [Reason.INTENDED, Reason.ENGINE_FAILED, Reason.INTENDED, Reason.REVERTED]
    assert world.pods[0].restarts == 0
    assert world.document is not None
    assert world.document.pods == {}
    assert "of pod chat-8b-1 when it restarts" in world.records[-1].message


def test_what_is_worse_goes_back_before_it_is_confirmed() -> None:
    world = MemoryWorld()
    world.worse = {UP}
    world.dies_after = {UP: 1e6}
    world.run(2000, until=Reason.ENGINE_RESTARTED)
    world.pods[1].started = world.now + 1e6
    world.run(600, until=Reason.REVERTED)
    assert Reason.REVERTED in world.told
