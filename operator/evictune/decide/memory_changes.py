"""How a change of the memory fraction begins and is taken back, and what ends it afterwards."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from evictune.api.decision import DecisionRecord, Pending, Turn
from evictune.api.knobs import KnobValues
from evictune.api.observation import MemoryAttempt, PodObservation
from evictune.api.quantity import format_fraction
from evictune.api.reasons import Reason
from evictune.decide.canary import baseline_of
from evictune.decide.changes import begin, next_revision, record_of
from evictune.decide.fractions import has, in_force, manifest, same
from evictune.decide.left import leave
from evictune.decide.situation import Situation, Step, sentence, show_fraction
from evictune.decide.wishes import Wish


def begin_memory(situation: Situation, wish: Wish, message: str) -> Step:
    """Write down the intent, with the pod that begins."""
    first = next_pod(situation, (), wish.target)
    if first is None:
        return Step(situation.memory)
    effective = in_force(situation)
    own = manifest(situation)
    untouched = own is not None and effective is not None and same(own, effective)
    memory = situation.memory
    # Where nothing of ours was kept, the manifest's own goes back; else what is in force.
    before = situation.present if memory.applied and situation.present.fraction else None
    if before is None:
        before = situation.present.at(None if untouched else effective)
    counted = replace(memory, disruptions=(*memory.disruptions, situation.now), trial=None)
    return begin(
        replace(situation, memory=counted),
        wish.target,
        wish.reason,
        message,
        before=before,
        baseline=baseline_of(situation, first),
        turns=(turn_of(situation, first),),
    )


def take_back(situation: Situation, pending: Pending, reason: Reason, why: str) -> Step:
    """End a change before all engines have it, and start on the way back."""
    told = record_of(situation, pending, reason, sentence(f"{why}."))
    memory = replace(situation.memory, pending=None)
    if reason is not Reason.ABANDONED:
        memory = leave(situation, memory, pending.change_to, reason)
    message = f"{sentence(why)}. Restoring {show_fraction(pending.change_from)}."
    step = begin(
        replace(situation, memory=memory),
        pending.change_from,
        Reason.REVERTED,
        message,
        pending.decision_id,
        before=pending.change_to,
    )
    return replace(step, records=(told, *step.records))


def afterwards(situation: Situation) -> Step | None:
    """The way back where what was kept killed an engine, or the manifest's own was changed since.

    None: it stands.
    """
    if situation.memory.trial is None or not situation.may_write or situation.suspended:
        return None
    return _failed_after_all(situation) or _manifest_changed(situation)


def _failed_after_all(situation: Situation) -> Step | None:
    trial, present = situation.memory.trial, situation.present
    if trial is None:
        return None
    why = failure(situation, trial.turns, present, counts=situation.now < trial.until)
    if why is None:
        return None
    target = present.at(trial.values_before.fraction)
    memory = leave(situation, situation.memory, present, Reason.ENGINE_FAILED)
    there = replace(situation, memory=replace(memory, trial=None))
    late = DecisionRecord(
        decision_id=f"{trial.decision_id}.late",
        time=situation.now,
        reason=Reason.ENGINE_FAILED,
        message=sentence(f"{why}."),
        change_from=target,
        change_to=present,
    )
    message = f"{sentence(why)}. Restoring {show_fraction(target)}."
    step = begin(there, target, Reason.ENGINE_FAILED, message, trial.decision_id, before=present)
    return replace(step, records=(late, *step.records))


def _manifest_changed(situation: Situation) -> Step | None:
    """Whoever edits the workload's own fraction has the last word: it is the new baseline."""
    trial, present, own = situation.memory.trial, situation.present, manifest(situation)
    if trial is None or trial.manifest is None or own is None or present.fraction is None:
        return None
    if same(trial.manifest, own):
        return None
    there = replace(situation, memory=replace(situation.memory, trial=None))
    message = (
        f"The manifest's memory fraction was changed from {format_fraction(trial.manifest)} to "
        f"{format_fraction(own)}: that counts from now on"
    )
    target, identity = present.at(None), trial.decision_id
    return begin(there, target, Reason.MANIFEST_CHANGED, message, identity, before=present)


def failure(
    situation: Situation, turns: Iterable[Turn], values: KnobValues, *, counts: bool = True
) -> str | None:
    """In words. counts: whether an engine that ended by itself counts, or only one that dropped."""
    fraction = show_fraction(values)
    for turn in turns:
        pod = find_pod(situation, turn)
        if pod is None:
            continue
        attempt = pod.memory
        if attempt is not None and _is_dropped(attempt, turn, values):
            return f"pod {pod.name} dropped {fraction}: an engine did not start or serve with it"
        if counts and pod.restarts > turn.restarts + 1:
            ended = pod.restarts - turn.restarts - 1
            often = "once" if ended == 1 else f"{ended} times"
            return f"the engine of pod {pod.name} ended {often} with {fraction}"
    return None


def _is_dropped(attempt: MemoryAttempt, turn: Turn, values: KnobValues) -> bool:
    """Whether the pod dropped this fraction since its turn came; an older one may still show."""
    tried, wanted = attempt.fraction, values.fraction
    if attempt.state != "dropped" or attempt.revision < turn.revision:
        return False
    return tried is not None and wanted is not None and same(tried, wanted)


def find_pod(situation: Situation, turn: Turn) -> PodObservation | None:
    for pod in situation.observation.pods:
        if (pod.name, pod.uid) == (turn.pod, turn.uid):
            return pod
    return None


def others(situation: Situation, turns: Iterable[Turn]) -> list[PodObservation]:
    """Pods whose turn has not come, the last one first: a StatefulSet's highest ordinal."""
    had = {(turn.pod, turn.uid) for turn in turns}
    pods = [pod for pod in situation.observation.pods if (pod.name, pod.uid) not in had]
    return sorted(pods, key=lambda pod: _ordinal(pod.name), reverse=True)


def next_pod(
    situation: Situation, turns: Iterable[Turn], values: KnobValues
) -> PodObservation | None:
    """The next ready pod that shows another fraction."""
    for pod in others(situation, turns):
        if pod.ready and has(situation, pod, values) is False:
            return pod
    return None


def _ordinal(name: str) -> tuple[str, int, str]:
    stem, _, number = name.rpartition("-")
    return (stem, int(number), name) if number.isdecimal() else (name, 0, name)


def turn_of(situation: Situation, pod: PodObservation) -> Turn:
    return Turn(pod.name, pod.uid, next_revision(situation), pod.restarts, situation.now)
