"""A change under way, carried on from facts alone.

Intent (status.pending), document, acknowledgement, settling, verdict: which of these has happened
is read from the document and the engines each time, so a crash between any two resumes by itself.
A revert is a change that goes the same way; it ends when it is acknowledged.
"""

from __future__ import annotations

from dataclasses import replace

from evictune.api.decision import Baseline, Pending, Phase
from evictune.api.observation import Interval
from evictune.api.policy import Mode
from evictune.api.quantity import format_duration, format_span
from evictune.api.reasons import Reason
from evictune.decide.changes import (
    POLL,
    abandon,
    finish,
    held,
    is_allowed,
    moved,
    record_of,
    revert,
    silent_engines,
    write,
)
from evictune.decide.document import carries
from evictune.decide.fractions import allows
from evictune.decide.memory_changes import take_back
from evictune.decide.objectives import show_interval
from evictune.decide.restarts import MEMORY_STAGES
from evictune.decide.situation import Situation, Step, sentence, show, show_fraction
from evictune.decide.traffic import alike
from evictune.decide.verdict import Outcome, compare

# kubelet brings a changed ConfigMap into a pod within its sync period (a minute) and its cache's
# delay; an engine that stays silent for longer than this is not listening.
ACKNOWLEDGE_LIMIT = 300.0
# A verdict waits this many settling times at most for replicas that change again and again.
PATIENCE = 4.0


def advance(situation: Situation) -> Step:
    """Carry the pending change as far as the facts allow."""
    step = Step(situation.memory)
    before = situation.memory.pending
    stages = MEMORY_STAGES if before and before.of_memory else _STAGES
    for stage in (_interrupted, *stages):
        pending = step.memory.pending
        if pending is None:
            break
        found = stage(replace(situation, memory=step.memory), pending)
        if found is None:
            continue
        step = replace(found, records=(*step.records, *found.records))
        if found.holds or found.effects:
            break
    return step


def _interrupted(situation: Situation, pending: Pending) -> Step | None:
    """What ends or freezes a change from outside."""
    document, suspended = situation.observation.document, situation.suspended
    written = carries(document, write(situation, pending))
    if situation.observation.conflict:
        memory = replace(situation.memory, applied=None)
        return abandon(replace(situation, memory=memory), pending, situation.observation.conflict)
    if document is not None and document.revision > pending.revision:
        return abandon(situation, pending, f"the document has revision {document.revision}")
    if not situation.may_write:
        return abandon(situation, pending, _withdrawn(situation), in_force=written)
    if pending.of_memory:
        return _memory_interrupted(situation, pending, written=written)
    if situation.knobs is None:
        return abandon(situation, pending, "spec.knobs.tlru is gone", in_force=written)
    if not is_allowed(situation, pending.change_to):
        why = f"spec.knobs no longer allows {show(pending.change_to)}"
        return abandon(situation, pending, why, in_force=written)
    if suspended and pending.phase is Phase.WRITING and not written:
        return abandon(situation, pending, suspended[1])
    return held(situation, suspended) if suspended else None


def _memory_interrupted(situation: Situation, pending: Pending, *, written: bool) -> Step | None:
    """The same for a change of the memory fraction, some of whose engines may have it already."""
    suspended = situation.suspended
    if not pending.revert_of and not allows(situation, pending.change_to):
        why = f"spec.knobs no longer allows {show_fraction(pending.change_to)}"
        return take_back(situation, pending, Reason.ABANDONED, why)
    if suspended and pending.phase is Phase.WRITING and not written and len(pending.turns) == 1:
        return abandon(situation, pending, suspended[1])
    return held(situation, suspended) if suspended else None


def _withdrawn(situation: Situation) -> str:
    """Why the document may no longer be written."""
    if situation.knobs is None and situation.fractions is None:
        return "spec.knobs names nothing any more"
    if situation.policy.spec.mode is not Mode.AUTO:
        return "spec.mode is no longer Auto"
    return "fleet.mode of the operator's configuration is no longer Auto"


def _written(situation: Situation, pending: Pending) -> Step | None:
    # A phase that only a memory fraction goes through, of another version: from the first step on.
    if pending.phase in (Phase.ACKNOWLEDGING, Phase.SETTLING):
        return None
    if not carries(situation.observation.document, write(situation, pending)):
        return Step(situation.memory, (write(situation, pending),), next_check=POLL)
    message = f"The knob document has revision {pending.revision}: {show(pending.change_to)}."
    told = record_of(situation, pending, Reason.WRITTEN, message)
    return moved(situation, replace(pending, phase=Phase.ACKNOWLEDGING), told)


def _acknowledged(situation: Situation, pending: Pending) -> Step | None:
    if pending.phase is not Phase.ACKNOWLEDGING:
        return None
    silent = silent_engines(situation, pending.revision, pending.change_to)
    if silent is None:
        number = len(situation.observation.engines)
        engines = "The engine has" if number == 1 else f"All {number} engines have"
        message = f"{engines} revision {pending.revision} in force: {show(pending.change_to)}."
        told = record_of(situation, pending, Reason.ACKNOWLEDGED, message)
        settling = replace(pending, phase=Phase.SETTLING, acknowledged_time=situation.now)
        return moved(situation, settling, told)
    if situation.now - pending.start_time <= ACKNOWLEDGE_LIMIT:
        message = f"revision {pending.revision} is not yet in force: {silent}"
        return held(situation, (Reason.POLICY_NOT_ACTIVE, message), POLL)
    limit = format_duration(ACKNOWLEDGE_LIMIT)
    return _give_up(situation, pending, f"not in force within {limit}: {silent}")


def _give_up(situation: Situation, pending: Pending, why: str) -> Step:
    """Some engine does not listen: take the change back, or give up a revert that is not heard."""
    if pending.revert_of or not is_allowed(situation, pending.change_from):
        return abandon(situation, pending, why, in_force=True)
    given_up = abandon(situation, pending, why, in_force=True)
    step = revert(situation, pending, Reason.ABANDONED, sentence(why))
    return replace(step, records=(*given_up.records, *step.records))


def _settled(situation: Situation, pending: Pending) -> Step | None:
    if pending.phase is not Phase.SETTLING:
        return None
    if pending.revert_of:
        message = f"{sentence(show(pending.change_to))} is in force again."
        return finish(situation, pending, Reason.REVERTED, message)
    silent = silent_engines(situation, pending.revision, pending.change_to)
    if silent is not None:
        return _acknowledge_again(situation, pending, silent)
    since = pending.acknowledged_time or pending.start_time
    rest = since + situation.settle - situation.now
    if rest > 0:
        message = f"the verdict is due in {format_span(rest)}"
        return held(situation, (Reason.SETTLING, message), max(rest, 0.1))
    return _unrest(situation, since) or _judged(situation, pending)


def _unrest(situation: Situation, since: float) -> Step | None:
    """A verdict waits for pods that come, go or are cold, though not for ever."""
    if situation.observation.target.rollout_in_progress:
        message = "the verdict waits for the rollout to end"
        return held(situation, (Reason.ROLLOUT_IN_PROGRESS, message))
    if not situation.unrest or situation.now - since > PATIENCE * situation.settle:
        return None
    rest = format_span(situation.unrest)
    message = f"the verdict waits until pods that came or went are warm, for {rest} yet"
    return held(situation, (Reason.REPLICAS_CHANGED, message))


def _acknowledge_again(situation: Situation, pending: Pending, silent: str) -> Step:
    """An engine came new or restarted: nothing is judged that is not in force everywhere."""
    again = replace(
        pending, phase=Phase.ACKNOWLEDGING, start_time=situation.now, acknowledged_time=None
    )
    hold = (Reason.POLICY_NOT_ACTIVE, f"no longer in force everywhere: {silent}")
    return replace(moved(situation, again), holds=(hold,), next_check=POLL)


def _judged(situation: Situation, pending: Pending) -> Step:
    """The verdict."""
    ttft, objective = situation.ttft, situation.objectives[0]
    if ttft is None:
        return held(situation, (Reason.SAMPLES, f"the verdict waits: {objective.message}"))
    outcome = compare(pending.baseline, ttft, objective.met is True, situation.tolerance)
    told = (
        f"{sentence(show(pending.change_to))} {outcome.value}: {objective.name} "
        f"{_compared(situation, pending.baseline, ttft)}"
    )
    if outcome is Outcome.HELPED or not is_allowed(situation, pending.change_from):
        return finish(situation, pending, Reason.KEPT, f"{told}.")
    changed = _incomparable(situation, pending)
    if changed:
        return finish(situation, pending, Reason.INCONCLUSIVE, f"{told}; but {changed}.")
    # Overflowing still: the way up is open. Back at stock LRU: nothing is gained by undoing it.
    if outcome is Outcome.SAME and (situation.overflowing or pending.change_to.stock):
        return finish(situation, pending, Reason.NO_DIFFERENCE, f"{told}.")
    return revert(situation, pending, Reason.REVERTED, told)


def _compared(situation: Situation, baseline: Baseline, now: Interval) -> str:
    """Before and after: the quantile, and the share that the verdict looks at first."""
    before = baseline.ttft_estimate
    told = (
        f"was {'unknown' if before is None else format_duration(before)}, is {show_interval(now)}"
    )
    if baseline.share_above is None:
        return told
    limit = format_duration(situation.policy.spec.slo.ttft.threshold)
    return (
        f"{told}; {baseline.share_above:.1%} of the requests were above {limit}, "
        f"{now.share_above:.1%} are"
    )


def _incomparable(situation: Situation, pending: Pending) -> str:
    """Why readings before and after the change tell nothing of it; "" if they do."""
    before, replicas = pending.baseline, situation.observation.target.desired_replicas
    if before.replicas not in (None, replicas):
        return f"there were {before.replicas} replicas, and are {replicas} now"
    if not alike(before.fingerprint, situation.fingerprint):
        return f"the traffic was {before.fingerprint}, and is {situation.fingerprint} now"
    return ""


_STAGES = (_written, _acknowledged, _settled)
