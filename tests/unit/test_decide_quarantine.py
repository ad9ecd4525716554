"""What was left stays away, longer each time, and under the traffic it was left under."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from evictune.api.decision import Memory, Phase, Quarantined
from evictune.api.knobs import KnobValues
from evictune.api.observation import Value
from evictune.api.reasons import Reason
from evictune.api.status_schema import MAX_QUARANTINE
from evictune.decide import decide
from evictune.decide.situation import remember

from tests.support.situations import (
    NOW,
    XI_512,
    applied,
    following,
    make_pending,
    make_policy,
    ttft,
)

FIRST = 3600.0  # 24 cooldowns of 2 minutes are less than the hour that it is at least.
WEEK = 7 * 86400.0
TRAFFIC = "6.67 requests/s per engine, 420 tokens a prompt"
OTHER = "90 requests/s per engine, 420 tokens a prompt"
DUE = NOW + 90


def _left(values: KnobValues = XI_512, **fields: Any) -> Quarantined:
    return replace(Quarantined(values, TRAFFIC, NOW - 1, Reason.REVERTED, 0.65), **fields)


def _reverted(*quarantine: Quarantined, **readings: Any) -> Quarantined:
    """The record of xi 512, taken back now because it made things worse."""
    memory = Memory(
        pending=make_pending(Phase.SETTLING), last_change_time=NOW, quarantine=quarantine
    )
    seen = following(XI_512, 2, ttft=ttft(0.9), **readings)
    after = decide(make_policy(), memory, seen, DUE).memory
    (record,) = [each for each in after.quarantine if each.values == XI_512 and each.until > DUE]
    return record


@pytest.mark.parametrize(
    ("times", "pause"),
    [(1, 2 * FIRST), (2, 4 * FIRST), (3, 8 * FIRST), (7, 128 * FIRST), (8, WEEK), (9000, WEEK)],
)
def test_each_time_for_twice_as_long_up_to_a_week(times: int, pause: float) -> None:
    record = _reverted(_left(times=times))
    assert (record.times, record.until) == (times + 1, DUE + pause)


def test_the_first_time_and_under_other_traffic_for_24_cooldowns_or_an_hour() -> None:
    assert _reverted().until == DUE + FIRST
    assert _reverted(_left(times=5, fingerprint=OTHER)).until == DUE + FIRST


def test_the_traffic_of_day_does_not_open_what_was_left_at_night() -> None:
    """Each traffic has its own record of a value: a load that comes and goes opens neither."""
    memory = Memory(quarantine=(_left(fingerprint=OTHER, until=NOW + 9999),))
    by_day = remember(memory, _left(until=NOW + 5))
    assert [each.fingerprint for each in by_day.quarantine] == [OTHER, TRAFFIC]
    again = remember(by_day, _left(until=NOW + 7))
    assert [each.until for each in again.quarantine] == [NOW + 9999, NOW + 7]


@pytest.mark.parametrize(("times", "kept_for"), [(1, FIRST), (3, 4 * FIRST)])
def test_how_often_is_known_for_as_long_again(times: int, kept_for: float) -> None:
    memory = Memory(quarantine=(_left(times=times, until=NOW),))
    seen = following(XI_512, ttft=ttft(0.1), evicted_protected=Value(0.0))
    for after, there in ((kept_for - 1, True), (kept_for, False)):
        kept = decide(make_policy(), memory, seen, NOW + after).memory
        assert bool(kept.quarantine) is there


def test_where_there_is_no_room_what_may_be_tried_soonest_goes() -> None:
    memory = Memory()
    for xi in range(1, MAX_QUARANTINE + 3):
        memory = remember(memory, _left(KnobValues(xi, 60), until=NOW + (xi * 37) % 100))
    soonest = sorted((xi * 37) % 100 for xi in range(1, MAX_QUARANTINE + 2))
    assert len(memory.quarantine) == MAX_QUARANTINE
    assert min(each.until for each in memory.quarantine) >= NOW + soonest[1]
    assert memory.quarantine[-1].values.xi_tokens == MAX_QUARANTINE + 2


def test_what_takes_the_document_away_each_time_is_not_fought() -> None:
    """Restored twice within an hour, and told; then left alone until the hour is over."""
    gone, restored = following(XI_512, ttft=ttft(0.2), document=None), []
    memory = applied(XI_512)
    for tick in range(130):
        decision = decide(make_policy(), memory, gone, NOW + 30 * tick)
        memory = decision.memory
        if decision.effects:
            restored.append(30 * tick)
            assert decision.audit[-1].reason is Reason.RESTORED
        elif tick < 120:
            assert decision.holds[-1][0] is Reason.FIGHT_DETECTED
    assert restored == [0, 30, 3600, 3630]
    (active,) = [each for each in decision.conditions if each.type == "PolicyActive"]
    assert (active.status, active.reason) == (False, Reason.FIGHT_DETECTED)
