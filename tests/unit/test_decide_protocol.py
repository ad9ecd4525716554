"""A change from intent to verdict, and every way in which it can go on after an interruption."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from evictune.api.decision import (
    Decision,
    Memory,
    Pending,
    Phase,
    Quarantined,
    Recommendation,
    WriteKnobs,
)
from evictune.api.knobs import STOCK_LRU, KnobDocument, KnobValues
from evictune.api.observation import Idle, Observation, TargetState, Unknown, Value
from evictune.api.reasons import Reason
from evictune.decide import decide
from evictune.decide.protocol import ACKNOWLEDGE_LIMIT

from tests.support.situations import (
    NOW,
    XI_512,
    XI_1024,
    applied,
    following,
    make_engine,
    make_pending,
    make_policy,
    observe,
    reasons,
    ttft,
)

WRITE = WriteKnobs(2, XI_512, 600.0)
DUE = NOW + 90  # settle 30 s, then one window of 60 s


def _memory(phase: Phase, **fields: Any) -> Memory:
    return Memory(pending=make_pending(phase, **fields), last_change_time=NOW)


def _decide(memory: Memory, observation: Observation, now: float = NOW, **spec: Any) -> Decision:
    return decide(make_policy(**spec), memory, observation, now)


def _pending(decision: Decision) -> Pending:
    assert decision.memory.pending is not None
    return decision.memory.pending


# Crash rows: memory as it was written, the facts as they stand.


def test_the_document_was_not_written() -> None:
    decision = _decide(_memory(Phase.WRITING), observe())
    assert decision.effects == (WRITE,)
    assert decision.audit[1:] == ()
    assert _pending(decision) == make_pending()
    assert decision.next_check == 1.0


def test_the_document_still_carries_the_change_before() -> None:
    older = KnobDocument(1, XI_1024, NOW + 600)
    decision = _decide(_memory(Phase.WRITING), observe(document=older))
    assert decision.effects == (WRITE,)


def test_the_document_was_written_and_nobody_has_read_it() -> None:
    document = KnobDocument(2, XI_512, NOW + 600)
    decision = _decide(_memory(Phase.WRITING), observe(document=document))
    assert decision.effects == ()
    assert _pending(decision).phase is Phase.ACKNOWLEDGING
    assert Reason.WRITTEN in reasons(decision.audit)
    assert reasons(decision.holds) == [Reason.POLICY_NOT_ACTIVE]


def test_the_engines_follow_already() -> None:
    decision = _decide(_memory(Phase.WRITING), following(XI_512, 2), NOW + 3)
    assert (_pending(decision).phase, _pending(decision).acknowledged_time) == (
        Phase.SETTLING,
        NOW + 3,
    )
    assert reasons(decision.audit)[-2:] == [Reason.WRITTEN, Reason.ACKNOWLEDGED]
    assert decision.next_check == 90.0


@pytest.mark.parametrize(
    "late",
    [
        make_engine(STOCK_LRU, 0, engine="1"),
        make_engine(XI_1024, 2, engine="1"),
        make_engine(XI_512, 1, engine="1"),
        make_engine(None, None, engine="1"),
    ],
    ids=["stock", "other values", "other revision", "no plugin"],
)
def test_every_engine_must_acknowledge(late: Any) -> None:
    engines = (make_engine(XI_512, 2), late)
    decision = _decide(_memory(Phase.ACKNOWLEDGING), following(XI_512, 2, engines=engines))
    assert _pending(decision).phase is Phase.ACKNOWLEDGING
    assert "1 of 2 engines, such as engine 1" in decision.holds[0][1]


def test_no_engine_is_no_acknowledgement() -> None:
    decision = _decide(_memory(Phase.ACKNOWLEDGING), following(XI_512, 2, engines=()))
    assert _pending(decision).phase is Phase.ACKNOWLEDGING


def test_an_engine_that_refuses_says_so() -> None:
    engines = (make_engine(STOCK_LRU, 0, refused_document="xiTokens out of range"),)
    decision = _decide(_memory(Phase.ACKNOWLEDGING), following(XI_512, 2, engines=engines))
    assert "it refused the document: xiTokens out of range" in decision.holds[0][1]


def test_a_change_that_is_not_heard_is_given_up_and_taken_back() -> None:
    deaf = following(XI_512, 2, engines=(make_engine(STOCK_LRU, 0),))
    memory = _memory(Phase.ACKNOWLEDGING)
    waiting = _decide(memory, deaf, NOW + ACKNOWLEDGE_LIMIT)
    assert _pending(waiting).revert_of == ""
    decision = _decide(memory, deaf, NOW + ACKNOWLEDGE_LIMIT + 1)
    assert reasons(decision.audit)[-2:] == [Reason.ABANDONED, Reason.INTENDED]
    assert _pending(decision).revert_of == make_pending().decision_id
    assert decision.effects == (WriteKnobs(3, STOCK_LRU, 600.0),)
    left = decision.memory.quarantine[-1]
    assert (left.values, left.reason, left.ttft) == (XI_512, Reason.ABANDONED, None)


def test_a_revert_that_is_not_heard_is_given_up_alone() -> None:
    memory = _memory(Phase.ACKNOWLEDGING, change_to=STOCK_LRU, change_from=XI_512, revert_of="x")
    deaf = following(STOCK_LRU, 2, engines=(make_engine(XI_512, 1),))
    decision = _decide(memory, deaf, NOW + ACKNOWLEDGE_LIMIT + 1)
    assert decision.memory.pending is None
    assert reasons(decision.audit)[-1] is Reason.ABANDONED
    assert decision.memory.applied is not None
    assert decision.memory.applied.values == STOCK_LRU


# Settling and the verdict.


def test_nothing_is_judged_before_settling_and_one_window_have_passed() -> None:
    decision = _decide(_memory(Phase.SETTLING), following(XI_512, 2, ttft=ttft(3.0)), DUE - 1)
    assert _pending(decision).phase is Phase.SETTLING
    assert reasons(decision.holds) == [Reason.SETTLING]
    assert decision.next_check == 1.0


def test_it_helped_and_stays() -> None:
    decision = _decide(_memory(Phase.SETTLING), following(XI_512, 2, ttft=ttft(0.2)), DUE)
    assert decision.memory.pending is None
    assert decision.memory.applied is not None
    assert (decision.memory.applied.revision, decision.memory.applied.values) == (2, XI_512)
    assert decision.audit[-1].reason is Reason.KEPT
    assert "TTFT p99 was 600ms, is 200ms" in decision.audit[-1].message


def test_it_made_things_worse_and_is_taken_back() -> None:
    decision = _decide(_memory(Phase.SETTLING), following(XI_512, 2, ttft=ttft(0.8)), DUE)
    pending = _pending(decision)
    assert (pending.change_from, pending.change_to) == (XI_512, STOCK_LRU)
    assert (pending.revision, pending.revert_of) == (3, make_pending().decision_id)
    assert decision.effects == (WriteKnobs(3, STOCK_LRU, 600.0),)
    assert [each.values for each in decision.memory.quarantine] == [XI_512]
    assert decision.memory.last_change_time == DUE


def test_what_is_being_tried_or_was_left_is_no_longer_recommended() -> None:
    begun = _decide(Memory(), observe())
    assert _pending(begun).change_to == XI_512
    assert begun.memory.recommendation is None
    told = Recommendation(XI_512, XI_512, "as an operator of before left it")
    memory = replace(_memory(Phase.SETTLING), recommendation=told)
    left = _decide(memory, following(XI_512, 2, ttft=ttft(0.8)), DUE)
    assert left.memory.recommendation is None


def test_a_verdict_says_what_it_rests_on() -> None:
    """More requests were above the threshold, though the quantile fell: so it was worse."""
    worse = following(XI_512, 2, ttft=ttft(0.55, above=0.3))
    decision = _decide(_memory(Phase.SETTLING), worse, DUE)
    assert (
        "made it worse: TTFT p99 was 600ms, is 550ms; 5.0% of the requests were above 300ms, "
        "30.0% are"
    ) in decision.audit[-1].message


def test_a_revert_ends_when_it_is_acknowledged() -> None:
    memory = _memory(
        Phase.ACKNOWLEDGING, revision=3, change_from=XI_512, change_to=STOCK_LRU, revert_of="x"
    )
    decision = _decide(memory, following(STOCK_LRU, 3), NOW + 5)
    assert decision.memory.pending is None
    assert reasons(decision.audit)[-2:] == [Reason.ACKNOWLEDGED, Reason.REVERTED]
    assert decision.memory.applied is not None
    assert decision.memory.applied.values == STOCK_LRU


def test_no_difference_while_the_region_overflows_leaves_the_way_up_open() -> None:
    overflow = {"evicted_protected": Value(300.0), "evicted_tel_safe": Value(200.0)}
    decision = _decide(_memory(Phase.SETTLING), following(XI_512, 2, **overflow), DUE)
    assert decision.memory.pending is None
    assert decision.audit[-1].reason is Reason.NO_DIFFERENCE
    assert decision.memory.applied is not None
    assert decision.memory.applied.values == XI_512


def test_no_difference_where_all_fits_is_taken_back() -> None:
    decision = _decide(_memory(Phase.SETTLING), following(XI_512, 2), DUE)
    assert _pending(decision).revert_of
    assert "made no difference" in decision.audit[-1].message


@pytest.mark.parametrize(
    ("fields", "hold"),
    [
        ({"ttft": Idle()}, Reason.SAMPLES),
        ({"ttft": Unknown(Reason.SOURCE_UNAVAILABLE, "timed out")}, Reason.SAMPLES),
        ({"target": TargetState(True, 2, 2, rollout_in_progress=True)}, Reason.ROLLOUT_IN_PROGRESS),
    ],
)
def test_the_verdict_waits_for_readings(fields: dict[str, Any], hold: Reason) -> None:
    decision = _decide(_memory(Phase.SETTLING), following(XI_512, 2, **fields), DUE + 100)
    assert _pending(decision).phase is Phase.SETTLING
    assert reasons(decision.holds) == [hold]


def test_an_engine_that_restarts_meanwhile_must_acknowledge_again() -> None:
    restarted = following(XI_512, 2, engines=(make_engine(STOCK_LRU, 0),))
    decision = _decide(_memory(Phase.SETTLING), restarted, DUE)
    pending = _pending(decision)
    assert (pending.phase, pending.acknowledged_time) == (Phase.ACKNOWLEDGING, None)
    again = _decide(decision.memory, following(XI_512, 2), DUE + 5)
    assert _pending(again).acknowledged_time == DUE + 5
    assert reasons(again.holds) == [Reason.SETTLING]


def test_what_a_revert_would_restore_must_be_within_bounds() -> None:
    """The bounds were narrowed while the change settled: the old value is no longer allowed."""
    memory = _memory(Phase.SETTLING, change_from=XI_1024)
    bounds = {"tlru": {"xiTokens": {"min": 32, "max": 512}}}
    worse = following(XI_512, 2, ttft=ttft(0.9))
    decision = _decide(memory, worse, DUE, knobs=bounds)
    assert decision.memory.pending is None
    assert decision.audit[-1].reason is Reason.KEPT


# Interruptions from outside.


@pytest.mark.parametrize("phase", list(Phase))
def test_bounds_that_were_narrowed_end_the_change(phase: Phase) -> None:
    narrow = {"tlru": {"xiTokens": {"max": 256}}}
    seen = observe() if phase is Phase.WRITING else following(XI_512, 2)
    first = _decide(_memory(phase), seen, NOW + 1, knobs=narrow)
    assert first.effects == ()
    assert first.memory.pending is None
    assert first.audit[-1].reason is Reason.ABANDONED
    if phase is not Phase.WRITING:  # In force, and brought within bounds once that may be done.
        after = _decide(first.memory, following(XI_512, 2), NOW + 121, knobs=narrow)
        assert _pending(after).change_to == KnobValues(256, 60)


def test_suspend_ends_what_is_not_written_and_freezes_what_is() -> None:
    unwritten = _decide(_memory(Phase.WRITING), observe(), suspend=True)
    assert (unwritten.memory.pending, unwritten.effects) == (None, ())
    assert unwritten.audit[-1].reason is Reason.ABANDONED
    worse = following(XI_512, 2, ttft=ttft(0.8), expires=DUE + 600)
    frozen = _decide(_memory(Phase.SETTLING), worse, DUE, suspend=True)
    assert (_pending(frozen).phase, frozen.effects) == (Phase.SETTLING, ())
    assert reasons(frozen.holds) == [Reason.SUSPENDED]


@pytest.mark.parametrize("mode", ["Recommend", "Observe"])
def test_leaving_auto_writes_nothing_and_lets_the_document_expire(mode: str) -> None:
    seen = following(XI_512, 2, expires=NOW + 10)
    decision = _decide(_memory(Phase.SETTLING), seen, DUE - 85, mode=mode)
    assert (decision.effects, decision.memory.pending) == ((), None)
    assert decision.memory.applied is not None
    assert decision.memory.applied.values == XI_512
    expired = _decide(decision.memory, following(XI_512, 2, expires=NOW), NOW + 1, mode=mode)
    assert (expired.effects, expired.memory.applied) == ((), None)


def test_knobs_that_are_taken_away_are_no_longer_renewed() -> None:
    seen = following(XI_512, 4, ttft=ttft(0.2), expires=NOW + 10)
    decision = _decide(applied(XI_512, 4), seen, knobs=None)
    assert decision.effects == ()
    assert decision.memory.applied is not None
    expired = _decide(decision.memory, seen, NOW + 20, knobs=None)
    assert (expired.effects, expired.memory.applied) == ((), None)


@pytest.mark.parametrize("phase", list(Phase))
def test_a_conflict_ends_the_change_and_nothing_is_written(phase: Phase) -> None:
    seen = following(XI_512, 2, conflict="field manager kubectl owns the document")
    decision = _decide(_memory(phase), seen, NOW + 5)
    assert (decision.effects, decision.memory.pending, decision.memory.applied) == ((), None, None)
    assert decision.audit[-1].reason is Reason.ABANDONED


def test_a_newer_document_ends_the_change_and_is_adopted() -> None:
    newer = following(XI_1024, 5)
    decision = _decide(_memory(Phase.SETTLING), newer)
    assert decision.memory.pending is None
    adopted = _decide(decision.memory, newer, NOW + 10)
    assert adopted.memory.applied is not None
    assert (adopted.memory.applied.revision, adopted.memory.applied.values) == (5, XI_1024)


def test_a_target_that_is_gone_leaves_the_change_where_it_is() -> None:
    gone = following(XI_512, 2, target=TargetState(False), engines=(), ttft=Idle())
    decision = _decide(_memory(Phase.ACKNOWLEDGING), gone, NOW + 60)
    assert _pending(decision).phase is Phase.ACKNOWLEDGING
    assert decision.memory.regime is not None
    assert decision.memory.regime.name is Reason.UNKNOWN


# Keeping alive what is in force.


@pytest.mark.parametrize(("rest", "renewed"), [(301.0, False), (300.0, True), (-5.0, True)])
@pytest.mark.parametrize("suspend", [False, True])
def test_renewed_at_half_of_its_life_with_the_same_revision(
    rest: float, renewed: bool, suspend: bool
) -> None:
    seen = following(XI_512, 4, ttft=ttft(0.2), expires=NOW + rest)
    decision = _decide(applied(XI_512, 4), seen, suspend=suspend)
    assert decision.effects == ((WriteKnobs(4, XI_512, 600.0),) if renewed else ())


def test_renewed_when_its_life_was_shortened_or_a_clock_was_set_back() -> None:
    seen = following(XI_512, 4, ttft=ttft(0.2), expires=NOW + 86400)
    assert _decide(applied(XI_512, 4), seen).effects == (WriteKnobs(4, XI_512, 600.0),)


def test_what_a_deleted_policy_left_is_taken_over_before_it_is_collected() -> None:
    left = KnobDocument(4, XI_512, NOW + 600, owned=False)
    seen = following(XI_512, 4, ttft=ttft(0.2), document=left)
    assert _decide(Memory(), seen).effects == (WriteKnobs(4, XI_512, 600.0),)
    assert _decide(Memory(), seen, mode="Recommend").effects == ()


def test_renewed_while_a_change_settles() -> None:
    seen = following(XI_512, 2, expires=NOW + 290)
    assert _decide(_memory(Phase.SETTLING), seen, NOW + 10).effects == (WRITE,)


def test_a_document_that_was_deleted_is_restored_but_not_while_suspended() -> None:
    seen = replace(following(XI_512, 4, ttft=ttft(0.2)), document=None)
    assert _decide(applied(XI_512, 4), seen).effects == (WriteKnobs(4, XI_512, 600.0),)
    assert _decide(applied(XI_512, 4), seen, suspend=True).effects == ()


def test_stock_lru_needs_no_document() -> None:
    seen = following(STOCK_LRU, 4, ttft=ttft(0.2), expires=NOW - 1)
    assert _decide(applied(STOCK_LRU, 4), seen).effects == ()


def test_a_lost_status_finds_its_values_again() -> None:
    decision = _decide(Memory(), following(XI_512, 7, ttft=ttft(0.2)))
    assert decision.memory.applied is not None
    assert (decision.memory.applied.revision, decision.memory.applied.values) == (7, XI_512)
    assert decision.effects == ()


def test_what_expired_while_nothing_was_written_does_not_come_back_by_itself() -> None:
    """Auto, then Recommend for longer than knobTTL, then Auto again."""
    expired = KnobDocument(7, XI_512, NOW - 5)
    seen = observe(ttft=ttft(0.2), document=expired)
    idle = _decide(applied(XI_512, 7), seen, mode="Recommend")
    assert idle.memory.applied is None
    again = _decide(idle.memory, seen)
    assert again.memory.applied is None
    assert again.effects == ()
    searching = _decide(idle.memory, replace(seen, ttft=ttft(0.6)))
    assert _pending(searching).revision == 8


@pytest.mark.parametrize("phase", list(Phase))
def test_a_clock_that_is_set_back_makes_nothing_wait_for_it(phase: Phase) -> None:
    tomorrow = NOW + 86400
    ahead = make_pending(phase, start_time=tomorrow)
    if phase is Phase.SETTLING:
        ahead = replace(ahead, acknowledged_time=tomorrow)
    left = Quarantined(XI_1024, "", tomorrow + 3600, Reason.REVERTED)
    memory = Memory(pending=ahead, last_change_time=tomorrow, quarantine=(left,))
    first = _decide(memory, following(XI_512, 2, expires=NOW + 600))
    assert first.memory.last_change_time == NOW
    assert first.memory.quarantine[0].until == NOW + 3600
    later = _decide(first.memory, following(XI_512, 2, ttft=ttft(0.2), expires=NOW + 600), DUE)
    assert later.memory.pending is None
    assert later.audit[-1].reason is Reason.KEPT


def test_revisions_grow_past_everything_that_was_seen() -> None:
    engines = (make_engine(STOCK_LRU, 9),)
    expired = KnobDocument(11, STOCK_LRU, NOW - 5)
    decision = _decide(applied(STOCK_LRU, 8), observe(engines=engines, document=expired))
    assert _pending(decision).revision == 12
    assert _pending(decision).decision_id == "0a1b2c3d-12-1800000000"


def test_one_decision_id_runs_through_a_change() -> None:
    first = _decide(Memory(), observe())
    identity = _pending(first).decision_id
    target = _pending(first).change_to
    second = _decide(first.memory, following(target, 1), NOW + 2)
    third = _decide(second.memory, following(target, 1, ttft=ttft(0.2)), NOW + 92)
    told = [*first.audit, *second.audit, *third.audit]
    changes = [record for record in told if record.reason is not Reason.REGIME_CHANGED]
    assert reasons(changes) == [
        Reason.INTENDED,
        Reason.WRITTEN,
        Reason.ACKNOWLEDGED,
        Reason.KEPT,
    ]
    assert {record.decision_id for record in changes} == {identity}
    assert {record.change_to for record in changes} == {XI_512}
