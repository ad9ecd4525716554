"""The guardrails: an ordered chain of small pure functions.

Each passes a wish (returns None), holds it with a reason, or clamps it (returns another wish). A
wish is carried out only if none holds; all that hold are told.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from evictune.api.policy import Mode
from evictune.api.quantity import format_duration, format_span
from evictune.api.reasons import Reason
from evictune.decide.situation import Hold, Situation, follows, show
from evictune.decide.wishes import Wish, is_steady, within

Guardrail = Callable[[Situation, Wish], Hold | Wish | None]


def guard(
    situation: Situation, wish: Wish, chain: tuple[Guardrail, ...] | None = None
) -> tuple[Wish, tuple[Hold, ...]]:
    """The wish as clamped, and what holds it back; nothing: it may be carried out.

    chain: in place of what an order of eviction has to pass.
    """
    holds: list[Hold] = []
    for check in GUARDRAILS if chain is None else chain:
        found = check(situation, wish)
        if isinstance(found, Wish):
            wish = found
        elif found is not None:
            holds.append(found)
    return wish, tuple(holds)


def not_suspended(situation: Situation, wish: Wish) -> Hold | None:
    """spec.suspend, or the administrator's fleet.mode."""
    return situation.suspended


def fleet_allows(situation: Situation, wish: Wish) -> Hold | None:
    """The administrator's fleet.mode, where it allows less than the policy's own mode."""
    if situation.observation.fleet.limits(situation.policy.spec.mode):
        target = show(wish.target)
        return Reason.FLEET_SWITCH, f"fleet.mode is Recommend: {target} is not written"
    return None


def mode_allows(situation: Situation, wish: Wish) -> Hold | None:
    """spec.mode."""
    mode = situation.policy.spec.mode
    if mode is Mode.OBSERVE:
        return Reason.OBSERVE_ONLY, "spec.mode is Observe"
    if mode is Mode.RECOMMEND:
        return Reason.RECOMMEND_ONLY, f"spec.mode is Recommend: {show(wish.target)} is not written"
    return None


def no_conflict(situation: Situation, wish: Wish) -> Hold | None:
    """One target, one policy, one writer."""
    if situation.observation.conflict:
        return Reason.CONFLICT, situation.observation.conflict
    return None


def engines_follow(situation: Situation, wish: Wish) -> Hold | None:
    """Every ready engine shows the plugin, with the values it should have."""
    for engine in situation.observation.engines:
        if not follows(engine, situation.present):
            shown = "no plugin" if engine.in_force is None else show(engine.in_force)
            return Reason.POLICY_NOT_ACTIVE, (
                f"engine {engine.engine} of pod {engine.pod} shows {shown}, "
                f"not {show(situation.present)}"
            )
    return None


def no_rollout(situation: Situation, wish: Wish) -> Hold | None:
    """Replicas that come and go blur every reading."""
    if situation.observation.target.rollout_in_progress:
        return Reason.ROLLOUT_IN_PROGRESS, "the target is rolling out or scaling"
    return None


def replicas_rest(situation: Situation, wish: Wish) -> Hold | None:
    """An autoscaler at work, a cold cache: what is read now is not what will be."""
    target = situation.observation.target
    if target.rollout_in_progress or not situation.unrest:
        return None
    rest = format_span(situation.unrest)
    number = f"{target.desired_replicas} replicas are wanted"
    return Reason.REPLICAS_CHANGED, f"pods came or went ({number}); {rest} until they are warm"


def enough_samples(situation: Situation, wish: Wish) -> Hold | None:
    """Leaving a value that was found, or ending the search, takes a whole window of the same.

    When traffic shifts, the window still holds requests from before: a change decided at once
    would be judged against that mixture and look worse than it is.
    """
    first = situation.present.stock and not wish.exhausted
    if wish.reason is Reason.REUSE_LOST and not first and not is_steady(situation):
        window = format_duration(situation.window)
        return Reason.SAMPLES, f"the readings must stay like this for one window ({window})"
    return None


def not_quarantined(situation: Situation, wish: Wish) -> Hold | None:
    """What was worse under like traffic is not tried again, unless it is the best there is."""
    record = situation.tried.get(wish.target.order)
    if record is not None and not wish.exhausted and wish.target != situation.present:
        rest = format_span(record.until - situation.now)
        return Reason.QUARANTINED, f"{show(wish.target)} was left ({record.reason}); for {rest} yet"
    return None


def cooled_down(situation: Situation, wish: Wish) -> Hold | None:
    """behavior.cooldown since the last change."""
    return _since_change(situation, situation.policy.spec.behavior.cooldown, Reason.COOLDOWN)


def settled(situation: Situation, wish: Wish) -> Hold | None:
    """After a revert, too, the window must hold only requests served since."""
    return _since_change(situation, situation.settle, Reason.SETTLING)


def within_bounds(situation: Situation, wish: Wish) -> Hold | Wish | None:
    """Never outside spec.knobs."""
    if situation.knobs is None:
        return Reason.NO_KNOBS, "spec.knobs.tlru is not set"
    target = within(wish.target, situation.knobs)
    if target == situation.present and wish.uncapped not in (target, wish.target):
        return Reason.AT_BOUND, f"{show(wish.uncapped)} lies outside spec.knobs"
    return None if target == wish.target else replace(wish, target=target)


def worth_it(situation: Situation, wish: Wish) -> Hold | None:
    """A wish for what is in force already is none."""
    if wish.target != situation.present:
        return None
    if wish.exhausted:
        violated = situation.objectives[0].message
        return Reason.EXHAUSTED, f"{violated}; {wish.basis}; {show(wish.target)} served best"
    return Reason.WITHIN_TOLERANCE, f"{show(wish.target)} is in force already"


def _since_change(situation: Situation, pause: float, reason: Reason) -> Hold | None:
    changed = situation.memory.last_change_time
    if changed is None or situation.now >= changed + pause:
        return None
    rest = format_span(changed + pause - situation.now)
    return reason, f"the last change is too recent, for {rest} yet"


GUARDRAILS: tuple[Guardrail, ...] = (
    not_suspended,
    fleet_allows,
    mode_allows,
    no_conflict,
    engines_follow,
    no_rollout,
    replicas_rest,
    enough_samples,
    not_quarantined,
    cooled_down,
    settled,
    within_bounds,
    worth_it,
)
