"""Is the first engine the better for its new memory fraction?

It is compared with its peers, which serve the same traffic at the same time, and with its own past.
A cold cache is no failure: it counts as warm once it finds as large a share of prompt tokens as its
peers do (or as it did), or once behavior.settle is over; a whole window later it is judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from evictune.api.decision import Baseline, Pending, Turn
from evictune.api.observation import Idle, Interval, PodObservation, number_of
from evictune.api.quantity import format_duration
from evictune.decide.objectives import judge_ttft, show_interval
from evictune.decide.situation import Situation
from evictune.decide.traffic import alike
from evictune.decide.verdict import Outcome, compare


def baseline_of(situation: Situation, pod: PodObservation) -> Baseline:
    """A pod's own readings, for its past to be compared with."""
    ttft = pod.ttft if isinstance(pod.ttft, Interval) else None
    return replace(
        situation.baseline_with(ttft),
        hit_ratio=number_of(pod.hit_ratio),
        preemptions=number_of(pod.preemptions),
    )


def is_warm(situation: Situation, pending: Pending, turn: Turn, pod: PodObservation) -> bool:
    """Whether the pod's cache finds what it did, or what its peers' do; or has had its time."""
    settle = situation.policy.spec.behavior.settle
    if turn.back_time is not None and situation.now - turn.back_time >= settle:
        return True
    found = number_of(pod.hit_ratio)
    others = [number_of(each.hit_ratio) for each in peers_of(situation, pending)]
    wanted = [each for each in (*others, pending.baseline.hit_ratio) if each is not None]
    if found is None or not wanted:
        return False
    return found >= max(wanted) * (1 - situation.tolerance)


def peers_of(situation: Situation, pending: Pending) -> list[PodObservation]:
    """Ready pods whose turn has not come yet."""
    changed = {turn.pod for turn in pending.turns}
    return [pod for pod in situation.observation.pods if pod.ready and pod.name not in changed]


def verdict(
    situation: Situation, pending: Pending, pod: PodObservation
) -> tuple[Outcome | None, str]:
    """The outcome, and in words what it rests on. None: there is nothing to compare with (yet)."""
    if not isinstance(pod.ttft, Interval):
        why = "no request in the window" if isinstance(pod.ttft, Idle) else pod.ttft.message
        return None, f"TTFT of pod {pod.name}: {why}"
    peers = peers_of(situation, pending)
    others = [baseline_of(situation, each) for each in peers]
    others = [each for each in others if each.ttft_estimate is not None]
    past = _past(situation, pending.baseline)
    told = f"TTFT of pod {pod.name} is {show_interval(pod.ttft)}"
    if past is not None and past.ttft_estimate is not None:
        told += f", was {format_duration(past.ttft_estimate)}"
    if others:
        worst = max(each.ttft_estimate or 0.0 for each in others)
        told += f", of its peers {format_duration(worst)} at most"
    if not others and past is None:
        return None, f"{told}; the traffic before was another, and there is no peer"
    return _outcome(situation, pod, pod.ttft, others, past), told


def _past(situation: Situation, baseline: Baseline) -> Baseline | None:
    """What the pod's readings were, where its traffic was like that of now."""
    known = baseline.ttft_estimate is not None
    return baseline if known and alike(baseline.fingerprint, situation.fingerprint) else None


def _outcome(
    situation: Situation,
    pod: PodObservation,
    ttft: Interval,
    others: Sequence[Baseline],
    past: Baseline | None,
) -> Outcome:
    """Peers count for more: they tell what the traffic alone has done meanwhile."""
    tolerance, spec = situation.tolerance, situation.policy.spec.slo.ttft
    met = judge_ttft(spec, tolerance, ttft).met is True
    by_past = None if past is None else compare(past, ttft, met, tolerance)
    found = by_past or Outcome.SAME
    if others:
        found = _common([compare(each, ttft, met, tolerance) for each in others])
        if by_past is not None and found is not by_past and Outcome.SAME is not by_past:
            # It was the better or the worse one before as well: then that says nothing.
            found = Outcome.SAME
        elif by_past is Outcome.SAME and found is Outcome.WORSE:
            found = Outcome.SAME
    if found is Outcome.SAME and _relieved(pod, others, past, tolerance):
        return Outcome.HELPED
    return found


def _common(outcomes: Sequence[Outcome]) -> Outcome:
    """What comparing with every one of them comes to; else it cannot be told."""
    return outcomes[0] if len(set(outcomes)) == 1 else Outcome.SAME


def _relieved(
    pod: PodObservation, others: Sequence[Baseline], past: Baseline | None, tolerance: float
) -> bool:
    """Whether it preempts less than its peers do, or than it did."""
    now = number_of(pod.preemptions)
    before = [each.preemptions for each in others] or [past.preemptions if past else None]
    known = [each for each in before if each is not None]
    if now is None or not known or len(known) < len(before):
        return False
    return now < sum(known) / len(known) * (1 - tolerance)
