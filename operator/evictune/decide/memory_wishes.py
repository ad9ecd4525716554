"""Which memory fraction decide would set, and what that wish has to pass.

More blocks help where live requests hold them all (CapacityBound): no other order of eviction frees
any. One step at a time, and only after a shortage has lasted for as long as a change takes to be
judged: one that is over sooner would be over before the engine is back with a warm cache.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from evictune.api.disruption import FractionRange
from evictune.api.quantity import format_fraction, format_span
from evictune.api.reasons import Reason
from evictune.decide.disruption import RESTART_GUARDS, RestartGuard, not_too_often
from evictune.decide.fractions import gain_of, in_force, manifest, misfit, same
from evictune.decide.guardrails import (
    Guardrail,
    cooled_down,
    engines_follow,
    fleet_allows,
    mode_allows,
    no_conflict,
    no_rollout,
    not_suspended,
    replicas_rest,
    settled,
)
from evictune.decide.situation import Hold, Situation
from evictune.decide.wishes import NOTHING_TO_JUDGE, Wish

# A step must cover this many times the tolerance of what waiting requests need. A live change may
# better a reading by the tolerance alone: it costs no cold cache.
RESTART_WORTH = 2.0


def memory_wish(situation: Situation, regime: Reason) -> Wish | None:
    """The memory fraction wanted, or None: nothing is wanted."""
    bounds, present = situation.fractions, situation.present
    if bounds is None or regime in NOTHING_TO_JUDGE:
        return None
    if present.fraction is not None:
        repaired = min(max(present.fraction, bounds.minimum), bounds.maximum)
        if repaired != present.fraction:
            basis = "the memory fraction in force lies outside spec.knobs"
            return Wish(present.at(repaired), present, Reason.AT_BOUND, basis)
    if regime is not Reason.CAPACITY_BOUND:
        return None
    return _step_up(situation, bounds)


def _step_up(situation: Situation, bounds: FractionRange) -> Wish:
    before, present = in_force(situation), situation.present
    if before is None:
        basis = "the memory fraction in force is not known"
        return Wish(present, present, Reason.CAPACITY_BOUND, basis)
    next_one = before + bounds.step
    target = min(next_one, bounds.maximum)
    gain = gain_of(situation, before, target) if target > before else None
    basis = f"from {format_fraction(before)}: " + (
        gain.text if gain else "how many KV blocks that adds is not known"
    )
    wanted = present.at(min(next_one, Decimal(1)))
    return Wish(wanted, wanted, Reason.CAPACITY_BOUND, basis, covers=gain.covers if gain else None)


def memory_eligible(situation: Situation, wish: Wish) -> Hold | None:
    """Every pod can take its fraction from the document."""
    for pod in situation.observation.pods:
        if pod.ready and (pod.memory is None or pod.memory.ineligible):
            why = "does not show evictune_memory_eligible: an older plugin, or none"
            if pod.memory is not None:
                why = f"cannot: {pod.memory.ineligible}"
            return Reason.MEMORY_NOT_ELIGIBLE, f"pod {pod.name} {why}"
    return None


def fraction_known(situation: Situation, wish: Wish) -> Hold | None:
    """Every engine shows one and the same fraction, and that which was kept."""
    differing = misfit(situation)
    if differing is not None:
        return Reason.FRACTION_NOT_IN_FORCE, differing
    if in_force(situation) is None:
        return Reason.FRACTION_NOT_IN_FORCE, (
            "the engines show no memory fraction (vllm:cache_config_info), or not the same"
        )
    if situation.present.fraction is None and manifest(situation) is None:
        return Reason.FRACTION_NOT_IN_FORCE, "the manifests' fractions are not the same"
    return None


def lasts(situation: Situation, wish: Wish) -> Hold | None:
    """The shortage has lasted for settle and one window."""
    shortage = situation.memory.shortage
    if wish.reason is not Reason.CAPACITY_BOUND or shortage is None:
        return None
    rest = shortage.since + situation.settle - situation.now
    if rest <= 0:
        return None
    return Reason.SAMPLES, f"the shortage must last for {format_span(rest)} yet"


def within_fractions(situation: Situation, wish: Wish) -> Hold | Wish | None:
    """Never outside spec.knobs."""
    bounds, wanted, before = situation.fractions, wish.target.fraction, in_force(situation)
    if bounds is None or wanted is None or before is None:
        return None
    target = min(wanted, bounds.maximum)
    if target < bounds.minimum or (wish.reason is not Reason.AT_BOUND and target <= before):
        limits = f"{format_fraction(bounds.minimum)} to {format_fraction(bounds.maximum)}"
        return Reason.AT_BOUND, (
            f"a step from {format_fraction(before)} lies outside "
            f"spec.knobs.gpuMemoryUtilization ({limits})"
        )
    return None if target == wanted else replace(wish, target=wish.target.at(target))


def not_failed_before(situation: Situation, wish: Wish) -> Hold | None:
    """What failed is not tried again, nor what lies beyond it: it would need more, or have less."""
    wanted, before = wish.target.fraction, in_force(situation)
    for each in situation.memory.quarantine:
        left = each.values.fraction
        if left is None or wanted is None or each.until <= situation.now:
            continue
        beyond = before is not None and (before < left < wanted or wanted < left < before)
        if beyond or same(left, wanted):
            rest = format_span(each.until - situation.now)
            return Reason.QUARANTINED, (
                f"memory fraction {format_fraction(left)} was left ({each.reason}); for {rest} yet"
            )
    return None


def proven(situation: Situation, wish: Wish) -> Hold | None:
    """A fraction that was kept may still kill its engines: no further step while that counts."""
    trial = situation.memory.trial
    if wish.reason is not Reason.CAPACITY_BOUND or trial is None or trial.until <= situation.now:
        return None
    rest = format_span(trial.until - situation.now)
    return Reason.SETTLING, f"the last memory fraction must prove itself for {rest} yet"


def worth_a_restart(situation: Situation, wish: Wish) -> Hold | None:
    """A restart is worth more than a live change."""
    least = min(1.0, RESTART_WORTH * situation.tolerance)
    target, before = wish.target.fraction, in_force(situation)
    up = target is not None and before is not None and target > before
    if wish.reason is not Reason.CAPACITY_BOUND or not up or (wish.covers or 0.0) >= least:
        return None
    if wish.covers is None:
        return Reason.GAIN_TOO_SMALL, "what a step gains cannot be told from the readings"
    return Reason.GAIN_TOO_SMALL, (
        f"a step covers {wish.covers:.1%} of what waiting requests need, and {least:.0%} at least "
        "are worth a restart"
    )


def _guardrail(check: RestartGuard) -> Guardrail:
    """A question about restarting at all, as one about a wish."""
    return lambda situation, wish: check(situation)


MEMORY_GUARDRAILS: tuple[Guardrail, ...] = (
    not_suspended,
    fleet_allows,
    mode_allows,
    no_conflict,
    engines_follow,
    memory_eligible,
    fraction_known,
    no_rollout,
    replicas_rest,
    lasts,
    within_fractions,
    not_failed_before,
    cooled_down,
    settled,
    proven,
    worth_a_restart,
    *(_guardrail(check) for check in (*RESTART_GUARDS, not_too_often)),
)
