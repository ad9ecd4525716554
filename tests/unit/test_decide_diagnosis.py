"""Each regime from the readings that make it, and the order in which they are tried."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from evictune.api.decision import Memory, Phase
from evictune.api.observation import Idle, Interval, Observation, TargetState, Unknown, Value
from evictune.api.policy import EvictionPolicy
from evictune.api.reasons import Kind, Reason
from evictune.decide.diagnosis import Regime, diagnose
from evictune.decide.situation import Situation

from tests.support.situations import NOW, make_engine, make_pending, make_policy, observe, ttft


def _diagnose(
    observation: Observation, memory: Memory | None = None, policy: EvictionPolicy | None = None
) -> Regime:
    return diagnose(Situation(policy or make_policy(), memory or Memory(), observation, NOW))


MISSING = Unknown(Reason.NO_SERIES, "source 'default' has no series")
STORM: dict[str, Any] = {
    "kv_usage": Value(1.0), "waiting": Value(184.0), "preemptions": Value(4.3),
}  # fmt: skip

CASES: list[tuple[Reason, dict[str, Any], str]] = [
    (Reason.UNKNOWN, {"ttft": MISSING}, "no series"),
    (Reason.UNKNOWN, {"target": TargetState(False, message="No such Deployment.")}, "No such"),
    (Reason.UNKNOWN, {"engines": ()}, "No engine"),
    (
        Reason.UNKNOWN,
        {"target": TargetState(True, problem=Reason.AMBIGUOUS_CONTAINER, message="Two engines.")},
        "Two engines",
    ),
    (Reason.UNKNOWN, {"kv_usage": MISSING}, "KV-cache usage"),
    (Reason.UNKNOWN, {"evicted_lru": MISSING}, "evicted is unknown"),
    (Reason.UNKNOWN, {"ttft": Interval(0.1, 2.5, 0.5, 400.0)}, "spans the threshold"),
    (Reason.IDLE, {"ttft": Idle()}, "No request"),
    (
        Reason.NOT_ELIGIBLE,
        {
            "engines": (
                make_engine(),
                make_engine(engine="1", eligible=False, ineligible_reason="PrefixCachingDisabled"),
            )
        },
        "engine 1 of pod chat-8b-0 cannot use T-LRU: PrefixCachingDisabled",
    ),
    (Reason.STALLED, {"ttft": Idle(), "waiting": Value(3.0)}, "3 requests wait, yet none"),
    (Reason.HEALTHY, {"ttft": ttft(0.2)}, "below the threshold"),
    (Reason.BORDERLINE, {"ttft": ttft(0.31)}, "within 10%"),
    (Reason.QUEUE_BOUND, {"waiting": Value(9.0), "queue_time": Value(0.4)}, "Requests wait 400ms"),
    (Reason.CAPACITY_BOUND, STORM, "Live requests hold 100% of the KV blocks"),
    (Reason.CAPACITY_BOUND, {"kv_usage": Value(0.95), "waiting": Value(3.0)}, "3 wait"),
    (Reason.REUSE_LOST, {}, "500 cached blocks were evicted"),
    (Reason.REUSE_LOST, {"kv_usage": Value(0.95)}, "500 cached blocks"),
    (Reason.NO_REUSE, {"evicted_lru": Value(0.0)}, "no cached block was evicted"),
    # 90,000 tokens are computed in the window; 1 % of the requests may take longer.
    (Reason.NO_REUSE, {"recomputed_tokens": Value(0.0)}, "only 0 of 90000 computed prompt tokens"),
    (Reason.NO_REUSE, {"recomputed_tokens": Value(440.0)}, "had been cached before"),
    (Reason.REUSE_LOST, {"recomputed_tokens": Value(460.0)}, "500 cached blocks"),
    (
        Reason.REUSE_LOST,
        {"recomputed_tokens": Value(0.0), "uncached_tokens": MISSING},
        "500 cached blocks",
    ),
]


@pytest.mark.parametrize(("regime", "fields", "words"), CASES)
def test_regime(regime: Reason, fields: dict[str, Any], words: str) -> None:
    found, message = _diagnose(observe(**fields))
    assert found is regime
    assert words in message


def test_every_regime_is_among_the_cases() -> None:
    regimes = {reason for reason in Reason if reason.kind is Kind.REGIME}
    assert regimes - {case[0] for case in CASES} == {Reason.SETTLING}


def test_a_change_under_way_settles() -> None:
    memory = Memory(pending=make_pending(Phase.ACKNOWLEDGING))
    assert _diagnose(observe(), memory)[0] is Reason.SETTLING


@pytest.mark.parametrize(("ago", "regime"), [(89.0, Reason.SETTLING), (90.0, Reason.REUSE_LOST)])
def test_after_a_change_a_whole_window_must_pass(ago: float, regime: Reason) -> None:
    """settle 30s, window 60s: after a revert, too, where nothing is pending any more."""
    assert _diagnose(observe(), Memory(last_change_time=NOW - ago))[0] is regime


@pytest.mark.parametrize(
    ("worse", "better"),
    [
        (Reason.UNKNOWN, {"ttft": MISSING, "engines": (make_engine(eligible=False),)}),
        (Reason.IDLE, {"ttft": Idle(), "engines": (make_engine(eligible=False),)}),
        (Reason.NOT_ELIGIBLE, {"ttft": ttft(0.1), "engines": (make_engine(eligible=False),)}),
        (Reason.CAPACITY_BOUND, STORM),
    ],
)
def test_the_first_that_fits_wins(worse: Reason, better: dict[str, Any]) -> None:
    assert _diagnose(observe(**better))[0] is worse


def test_an_engine_that_is_not_eligible_does_not_matter_where_nothing_is_to_be_turned() -> None:
    observation = observe(0.2, engines=(make_engine(eligible=False),))
    assert _diagnose(observation, policy=make_policy(knobs=None))[0] is Reason.HEALTHY


def test_a_limit_of_the_slo_that_is_violated_alone_is_a_matter_of_capacity() -> None:
    policy = make_policy(slo={"maxKVCacheUsage": "0.80"})
    regime, message = _diagnose(observe(0.2, kv_usage=Value(0.85)), policy=policy)
    assert regime is Reason.CAPACITY_BOUND
    assert "KV-cache usage 0.85 is above 0.80" in message


def test_a_high_usage_with_nobody_waiting_is_not_pressure() -> None:
    storm = observe(**STORM)
    calm = replace(storm, waiting=Value(0.0), preemptions=Value(0.0))
    assert _diagnose(calm)[0] is Reason.REUSE_LOST


@pytest.mark.parametrize(
    ("preemptions", "regime"),
    [
        # A second, over a window of a minute with 600 requests: 30 and 120.
        (0.5, Reason.QUEUE_BOUND),
        (2.0, Reason.CAPACITY_BOUND),
    ],
)
def test_who_preempts_has_no_room_whatever_is_held_at_the_moment(
    preemptions: float, regime: Reason
) -> None:
    seen = observe(
        kv_usage=Value(0.62),
        waiting=Value(190.0),
        queue_time=Value(5.0),
        ttft=ttft(38.0, requests=600.0),
        preemptions=Value(preemptions),
    )
    assert _diagnose(seen)[0] is regime


@pytest.mark.parametrize(
    ("usage", "prompt_tokens", "regime"),
    [
        # Of 6,400 tokens. The last two prompts must fit.
        (0.85, 300.0, Reason.QUEUE_BOUND),
        (0.85, 500.0, Reason.CAPACITY_BOUND),
        (0.55, 1600.0, Reason.CAPACITY_BOUND),
        (0.45, 1600.0, Reason.QUEUE_BOUND),
        (0.91, 10.0, Reason.CAPACITY_BOUND),
    ],
)
def test_where_prompts_are_long_there_is_no_room_long_before_every_block_is_held(
    usage: float, prompt_tokens: float, regime: Reason
) -> None:
    seen = observe(
        kv_usage=Value(usage),
        waiting=Value(3.0),
        queue_time=Value(5.0),
        prompt_tokens_per_request=Value(prompt_tokens),
    )
    assert _diagnose(seen)[0] is regime
