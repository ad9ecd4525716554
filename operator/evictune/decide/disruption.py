"""May an engine be restarted now? Asked before a change begins, and before each further restart.

An ordered chain of small pure functions, each passing (None) or holding with a reason.
"""

from __future__ import annotations

from collections.abc import Callable

from evictune.api.disruption import DisruptionPolicy
from evictune.api.observation import Reading, number_of
from evictune.api.quantity import format_span
from evictune.api.reasons import Reason
from evictune.api.schedule import next_opening, open_until
from evictune.api.times import format_time
from evictune.decide.situation import Hold, Situation

DAY = 86400.0
# So many preemptions a second of one engine, or as many waiting as running, are a storm: what one
# engine less could not serve would be added to a queue that grows already.
STORM_PREEMPTIONS = 1.0

RestartGuard = Callable[[Situation], Hold | None]


def may_restart(situation: Situation) -> tuple[Hold, ...]:
    """What holds one more restart back; nothing: the next engine may go."""
    found = (check(situation) for check in RESTART_GUARDS)
    return tuple(hold for hold in found if hold is not None)


def may_go_back(situation: Situation) -> tuple[Hold, ...]:
    """The same where a change is taken back: also in a storm, which it may have caused."""
    found = (check(situation) for check in RESTART_GUARDS if check is not no_storm)
    return tuple(hold for hold in found if hold is not None)


def disruption_allowed(situation: Situation) -> Hold | None:
    """behavior.disruption.policy."""
    if situation.disruption.policy is DisruptionPolicy.NEVER:
        return Reason.DISRUPTION_NEVER, "behavior.disruption.policy is Never: no engine restarts"
    return None


def redundant(situation: Situation) -> Hold | None:
    """Another engine serves meanwhile."""
    ready = _ready(situation)
    if situation.disruption.policy is DisruptionPolicy.WHEN_REDUNDANT and ready < 2:
        return Reason.NOT_REDUNDANT, f"Ready engines: {ready}; WhenRedundant asks for two"
    return None


def enough_stay_ready(situation: Situation) -> Hold | None:
    """behavior.disruption.minReady."""
    ready, least = _ready(situation), situation.disruption.least_ready
    if situation.disruption.policy is DisruptionPolicy.NEVER or ready - 1 >= least:
        return None
    return Reason.MIN_READY, f"Ready engines: {ready}; minReady {least} would not be kept"


def nobody_away(situation: Situation) -> Hold | None:
    """Never two engines away at once."""
    target = situation.observation.target
    away = [pod.name for pod in situation.observation.pods if not pod.ready]
    if away:
        return Reason.ENGINE_AWAY, f"pod {away[0]} is not Ready"
    if target.ready_replicas < target.desired_replicas:
        number = f"{target.ready_replicas} of {target.desired_replicas} pods"
        return Reason.ENGINE_AWAY, f"{number} are Ready"
    return None


def no_replacement(situation: Situation) -> Hold | None:
    """A person's rollout, or an autoscaler at work."""
    if situation.observation.target.replacing:
        why = situation.observation.target.message or "the target is rolling out or scaling"
        return Reason.ROLLOUT_IN_PROGRESS, why
    return None


def nothing_elsewhere(situation: Situation) -> Hold | None:
    """One restart at a time in the whole fleet."""
    if situation.observation.restart_elsewhere:
        return Reason.RESTART_ELSEWHERE, situation.observation.restart_elsewhere
    return None


def within_window(situation: Situation) -> Hold | None:
    """behavior.disruption.windows."""
    windows = situation.disruption.windows
    if not windows or open_until(windows, situation.now) is not None:
        return None
    opening = next_opening(windows, situation.now)
    until = "none ever opens" if opening is None else f"the next opens {format_time(opening)}"
    return Reason.OUTSIDE_WINDOW, f"no window of behavior.disruption.windows is open; {until}"


def not_too_often(situation: Situation) -> Hold | None:
    """behavior.disruption.maxPerDay. Asked only before a change begins."""
    most = situation.disruption.max_per_day
    lately = sorted(each for each in situation.memory.disruptions if each > situation.now - DAY)
    if len(lately) < most:
        return None
    rest = format_span(lately[-most] + DAY - situation.now)
    return Reason.MAX_PER_DAY, f"{len(lately)} changes were begun within 24 hours; for {rest} yet"


def no_storm(situation: Situation) -> Hold | None:
    """An engine is not taken away while requests pile up, unless policy Allow says so."""
    if situation.disruption.policy is DisruptionPolicy.ALLOW:
        return None
    seen = situation.observation
    waiting, running = _number(seen.waiting), _number(seen.running)
    preemptions = _number(seen.preemptions)
    if preemptions >= STORM_PREEMPTIONS or (waiting >= 1 and waiting >= running):
        return Reason.STORM, (
            f"{waiting:g} requests wait, {running:g} run, {preemptions:.2g} preemptions a second"
        )
    return None


def _ready(situation: Situation) -> int:
    return sum(pod.ready for pod in situation.observation.pods)


def _number(reading: Reading) -> float:
    return number_of(reading) or 0.0


RESTART_GUARDS: tuple[RestartGuard, ...] = (
    disruption_allowed,
    redundant,
    enough_stay_ready,
    nobody_away,
    no_replacement,
    nothing_elsewhere,
    within_window,
    no_storm,
)
