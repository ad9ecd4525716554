"""A change of the memory fraction, carried on from facts alone: one engine restarts at a time.

For each pod: the document asks it to restart (Writing), it is away (Restarting), it serves with the
new fraction and warms up (Settling). The first is judged before the second is asked; the document's
default entry follows when all have it (Concluding). Which of these has happened is read from the
document and the engines each time, so a crash between any two resumes by itself. Taking a change
back goes the same way, but for the judging, and with the default entry first: whatever starts anew
meanwhile starts as before.
"""

from __future__ import annotations

from dataclasses import replace

from evictune.api.decision import DecisionRecord, Pending, Phase, Trial, Turn
from evictune.api.observation import PodObservation
from evictune.api.quantity import format_duration, format_span
from evictune.api.reasons import Reason
from evictune.decide.canary import is_warm, verdict
from evictune.decide.changes import (
    POLL,
    abandon,
    finish,
    held,
    moved,
    next_revision,
    record_of,
    write,
)
from evictune.decide.disruption import may_go_back, may_restart
from evictune.decide.document import TRIAL, carries
from evictune.decide.fractions import allows, has, manifest
from evictune.decide.left import reopened
from evictune.decide.memory_changes import (
    failure,
    find_pod,
    next_pod,
    others,
    take_back,
    turn_of,
)
from evictune.decide.situation import Hold, Situation, Step, sentence, show_fraction
from evictune.decide.verdict import Outcome

# From the word to an engine that serves: kubelet's sync of the mount, the plugin's time until the
# cluster knows, draining (added to it), and what a large model takes to load.
RESTART_LIMIT = 1800.0
# The first engine is judged this many settling times after it came back at the latest.
PATIENCE = 4.0
# What a change that is taken back waits for, however long it takes: the user's own word, and the
# rest of the fleet. For all else only so long as an engine may take to come back.
_WAITED_FOR = (Reason.OUTSIDE_WINDOW, Reason.RESTART_ELSEWHERE)


def _failed(situation: Situation, pending: Pending) -> Step | None:
    """An engine that did not start with the new fraction, or ended with it; a pod that is gone."""
    if pending.revert_of:
        return None
    why = failure(situation, pending.turns, pending.change_to)
    if why is not None:
        return take_back(situation, pending, Reason.ENGINE_FAILED, why)
    turn = pending.turn
    if turn is not None and pending.phase is not Phase.CONCLUDING and not find_pod(situation, turn):
        return take_back(situation, pending, Reason.ABANDONED, f"pod {turn.pod} was replaced")
    return None


def _written(situation: Situation, pending: Pending) -> Step | None:
    """The document asks the pod whose turn it is; asked again only when it may still restart."""
    if pending.phase not in (Phase.WRITING, Phase.RESTARTING):
        return None
    document, wanted = situation.observation.document, write(situation, pending)
    if document is not None and document.expires > situation.now and carries(document, wanted):
        if pending.phase is Phase.RESTARTING:
            return None
        phase = Phase.RESTARTING if pending.turn else Phase.SETTLING
        return moved(situation, replace(pending, phase=phase))
    if pending.turn is None:
        return Step(situation.memory, (wanted,), next_check=POLL)
    answered = _is_back(situation, pending, pending.turn) or _is_overdue(situation, pending)
    if pending.phase is Phase.RESTARTING and answered:
        return None
    holds = _holds(situation, pending)
    if not holds:
        return Step(situation.memory, (wanted,), next_check=POLL)
    return _not_asked(situation, pending, holds) or _waits(situation, pending, holds)


def _not_asked(situation: Situation, pending: Pending, holds: tuple[Hold, ...]) -> Step | None:
    """Nobody asked the pod yet, and it may no longer be asked: then it is not its turn."""
    if pending.phase is not Phase.WRITING:
        return None
    if len(pending.turns) == 1 and not pending.revert_of:
        return abandon(situation, pending, holds[0][1])
    before = replace(pending, phase=Phase.SETTLING, turns=pending.turns[:-1])
    return replace(moved(situation, before), effects=(write(situation, before),), holds=holds)


def _restarting(situation: Situation, pending: Pending) -> Step | None:
    turn = pending.turn
    if pending.phase is not Phase.RESTARTING or turn is None:
        return None
    if _is_back(situation, pending, turn):
        back = replace(turn, back_time=situation.now)
        settling = replace(pending, phase=Phase.SETTLING, turns=(*pending.turns[:-1], back))
        return moved(situation, settling, _restarted(situation, pending, turn))
    if not _is_overdue(situation, pending):
        message = f"pod {turn.pod} does not serve with {show_fraction(pending.change_to)} yet"
        return held(situation, (Reason.ENGINE_RESTARTING, message))
    if pending.revert_of:
        return _conclude(situation, pending)
    why = f"pod {turn.pod} did not come back within {format_duration(_limit(situation))}"
    return take_back(situation, pending, Reason.ENGINE_FAILED, why)


def _settled(situation: Situation, pending: Pending) -> Step | None:
    """The pod that came back: warm, and of the first one a verdict; then the next."""
    turn = pending.turn
    if pending.phase is not Phase.SETTLING:
        return None
    if turn is None or pending.revert_of:
        return _next(situation, pending)
    pod = find_pod(situation, turn)
    if pod is None or not pod.ready:
        return held(situation, (Reason.ENGINE_AWAY, f"pod {turn.pod} is not Ready"))
    if turn.warm_time is None:
        if not is_warm(situation, pending, turn, pod):
            message = f"the cache of pod {turn.pod} is cold yet"
            return held(situation, (Reason.SETTLING, message))
        warm = replace(turn, warm_time=situation.now)
        return moved(situation, replace(pending, turns=(*pending.turns[:-1], warm)))
    passed = len(pending.turns) > 1 or pending.acknowledged_time is not None
    return _next(situation, pending) if passed else _judged(situation, pending, pod)


def _judged(situation: Situation, pending: Pending, pod: PodObservation) -> Step:
    """The first pod's verdict, once."""
    turn = pending.turns[0]
    since = turn.warm_time if turn.warm_time is not None else situation.now
    rest = since + situation.window - situation.now
    if rest > 0:
        message = f"the verdict about pod {pod.name} is due in {format_span(rest)}"
        return held(situation, (Reason.SETTLING, message), max(rest, 0.1))
    outcome, told = verdict(situation, pending, pod)
    patient = situation.now - since <= PATIENCE * situation.settle
    # What spec.knobs forbids by now is no way back.
    if outcome is Outcome.HELPED or not allows(situation, pending.change_from):
        if patient and pod.memory is not None and pod.memory.state == "trying":
            message = f"pod {pod.name} has not confirmed {show_fraction(pending.change_to)} yet"
            return held(situation, (Reason.SETTLING, message))
        passed = replace(pending, acknowledged_time=situation.now)
        record = record_of(situation, pending, Reason.CANARY_PASSED, f"{sentence(told)}.")
        return moved(situation, passed, record)
    if outcome is None and patient:
        return held(situation, (Reason.SAMPLES, f"the verdict waits: {told}"))
    if outcome is None:
        return take_back(situation, pending, Reason.INCONCLUSIVE, f"no verdict is possible: {told}")
    reason = Reason.NO_DIFFERENCE if outcome is Outcome.SAME else Reason.REVERTED
    told = f"{show_fraction(pending.change_to)} {outcome.value}: {told}"
    return take_back(situation, pending, reason, told)


def _next(situation: Situation, pending: Pending) -> Step:
    """The next pod is asked, or all have it: the default entry follows."""
    pod = next_pod(situation, pending.turns, pending.change_to)
    unsure = _unsure(situation, pending)
    if pod is None and unsure is None:
        return _conclude(situation, pending)
    holds = _holds(situation, pending)
    if not holds and unsure is not None:
        holds = (unsure,)
    if holds or pod is None:
        return _waits(situation, pending, holds)
    asked = replace(
        pending,
        revision=next_revision(situation),
        phase=Phase.WRITING,
        turns=(*pending.turns, turn_of(situation, pod)),
    )
    step = moved(situation, asked)
    return replace(step, effects=(write(situation, asked),))


def _unsure(situation: Situation, pending: Pending) -> Hold | None:
    """A pod of which it is not known whether it has the fraction."""
    for pod in others(situation, pending.turns):
        if not pod.ready:
            return Reason.ENGINE_AWAY, f"pod {pod.name} is not Ready"
        if has(situation, pod, pending.change_to) is None:
            return Reason.FRACTION_NOT_IN_FORCE, f"pod {pod.name} does not show its fraction"
    return None


def _waits(situation: Situation, pending: Pending, holds: tuple[Hold, ...]) -> Step:
    """A restart that may not be yet; a change that is taken back does not wait for all of it."""
    step = Step(situation.memory, holds=holds)
    if not pending.revert_of or any(reason in _WAITED_FOR for reason, _ in holds):
        return step
    never = any(reason is Reason.DISRUPTION_NEVER for reason, _ in holds)
    return _conclude(situation, pending) if never or _is_overdue(situation, pending) else step


def _limit(situation: Situation) -> float:
    """How long an engine may take to come back, seconds."""
    return RESTART_LIMIT + situation.disruption.drain_timeout


def _is_overdue(situation: Situation, pending: Pending) -> bool:
    """Whether nothing more is to be expected since the last pod was asked, or the change began."""
    since = pending.turn.start_time if pending.turn else pending.start_time
    return situation.now - since > _limit(situation)


def _conclude(situation: Situation, pending: Pending) -> Step:
    last = replace(pending, revision=next_revision(situation), phase=Phase.CONCLUDING)
    step = moved(situation, last)
    return replace(step, effects=(write(situation, last),))


def _concluded(situation: Situation, pending: Pending) -> Step | None:
    if pending.phase is not Phase.CONCLUDING:
        return None
    wanted = write(situation, pending)
    if not carries(situation.observation.document, wanted):
        return Step(situation.memory, (wanted,), next_check=POLL)
    values = show_fraction(pending.change_to)
    if pending.revert_of:
        missing = [
            pod.name
            for pod in situation.observation.pods
            if not pod.ready or has(situation, pod, pending.change_to) is not True
        ]
        later = f"; of pod {', '.join(missing)} when it restarts" if missing else ""
        told = f"{sentence(values)} is in force again{later}."
        return _cleared(finish(situation, pending, Reason.REVERTED, told))
    told = f"{sentence(values)} is in force in every engine, and what new pods start with."
    step = finish(situation, pending, Reason.KEPT, told)
    until, own = situation.now + TRIAL, manifest(situation)
    trial = Trial(pending.decision_id, pending.change_from, until, own, pending.turns)
    memory = reopened(step.memory, pending.change_to, situation.now)
    return replace(step, memory=replace(memory, trial=trial))


def _cleared(step: Step) -> Step:
    return replace(step, memory=replace(step.memory, trial=None))


def _holds(situation: Situation, pending: Pending) -> tuple[Hold, ...]:
    """What holds the next restart back."""
    check = may_go_back if pending.revert_of else may_restart
    return check(situation)


def _restarted(situation: Situation, pending: Pending, turn: Turn) -> DecisionRecord:
    """Told once a pod: the record's name comes from its turn."""
    blocks = [e.blocks for e in situation.observation.engines if e.pod == turn.pod and e.blocks]
    shown = f": {blocks[0]} KV blocks" if blocks else ""
    message = f"Pod {turn.pod} serves with {show_fraction(pending.change_to)}{shown}."
    record = record_of(situation, pending, Reason.ENGINE_RESTARTED, message)
    return replace(record, decision_id=f"{pending.decision_id}.{len(pending.turns)}")


def _is_back(situation: Situation, pending: Pending, turn: Turn) -> bool:
    pod = find_pod(situation, turn)
    return pod is not None and pod.ready and has(situation, pod, pending.change_to) is True


MEMORY_STAGES = (_failed, _written, _restarting, _settled, _concluded)
