"""What are the engines doing? Regimes, tried in the order of `Reason`: the first that fits."""

from __future__ import annotations

from collections.abc import Callable

from evictune.api.observation import Idle, Reading, Unknown, number_of
from evictune.api.quantity import format_duration, format_span
from evictune.api.reasons import Reason
from evictune.decide.situation import Situation, show, show_fraction

# Above this share of KV blocks held by live requests there is no room for another prompt; above a
# smaller one where prompts are long: a request that ended a moment ago has left room for one.
FULL = 0.9
PROMPTS_LEFT = 2.0
# A running request is preempted only where no block is left: this share of the requests says that
# there was no room within the window, whatever is held at the moment of the look.
PREEMPTED = 0.1
# A mean wait of this share of the threshold is a queue, not a moment's coincidence.
QUEUED = 0.5

Regime = tuple[Reason, str]


def diagnose(situation: Situation) -> Regime:
    """The regime and why, in words with the readings it rests on."""
    for check in _CHECKS:
        found = check(situation)
        if found is not None:
            return found
    return Reason.UNKNOWN, "No regime fits the readings."


def _restarting(situation: Situation) -> Regime | None:
    """The only engine that restarts on request is no mystery."""
    pending = situation.memory.pending
    if pending is None or pending.turn is None or not pending.restarting:
        return None
    fraction = show_fraction(pending.change_to)
    return Reason.SETTLING, f"Pod {pending.turn.pod} restarts for {fraction}."


def _unknown(situation: Situation) -> Regime | None:
    target, ttft = situation.observation.target, situation.observation.ttft
    if not target.found:
        return Reason.UNKNOWN, target.message or "The target does not exist."
    if target.problem is not None or not situation.observation.engines:
        return Reason.UNKNOWN, target.message or "No engine of the target is ready."
    if isinstance(ttft, Unknown):
        return Reason.UNKNOWN, f"TTFT is unknown ({ttft.reason}): {ttft.message}"
    return None


def _idle(situation: Situation) -> Regime | None:
    if isinstance(situation.observation.ttft, Idle) and not _waiting(situation):
        return Reason.IDLE, "No request finished its prefill within the window."
    return None


def _not_eligible(situation: Situation) -> Regime | None:
    if situation.knobs is None:
        return None
    for engine in situation.observation.engines:
        if engine.eligible is False:
            why = engine.ineligible_reason or "no reason given"
            name = f"engine {engine.engine} of pod {engine.pod}"
            return Reason.NOT_ELIGIBLE, f"{name} cannot use T-LRU: {why}"
    return None


def _settling(situation: Situation) -> Regime | None:
    pending = situation.memory.pending
    if pending is not None:
        return Reason.SETTLING, f"{show(pending.change_to)} is {pending.phase.lower()}."
    changed = situation.memory.last_change_time
    if changed is not None and situation.now < changed + situation.settle:
        rest = format_span(changed + situation.settle - situation.now)
        return Reason.SETTLING, f"The last change is still settling, for {rest}."
    return None


def _stalled(situation: Situation) -> Regime | None:
    """No first token is no peace where requests wait for one."""
    if isinstance(situation.observation.ttft, Idle):
        window = format_duration(situation.window)
        waiting = f"{_waiting(situation):g} requests wait"
        return Reason.STALLED, f"{waiting}, yet none got its first token within {window}."
    return None


def _healthy(situation: Situation) -> Regime | None:
    objectives = situation.objectives
    if all(objective.met for objective in objectives):
        return Reason.HEALTHY, "; ".join(objective.message for objective in objectives)
    return None


def _borderline(situation: Situation) -> Regime | None:
    """Nothing violated, yet not all met."""
    objectives = situation.objectives
    if any(objective.met is False for objective in objectives):
        return None
    unclear = [objective for objective in objectives if objective.met is None]
    message = "; ".join(objective.message for objective in unclear)
    if all(objective.reason is Reason.SLO_UNCERTAIN for objective in unclear):
        return Reason.BORDERLINE, message
    return Reason.UNKNOWN, message


def _queue_bound(situation: Situation) -> Regime | None:
    seen = situation.observation
    usage, waiting, queued = (
        number_of(seen.kv_usage),
        number_of(seen.waiting),
        number_of(seen.queue_time),
    )
    if usage is None or waiting is None or queued is None:
        return None
    long_wait = QUEUED * situation.policy.spec.slo.ttft.threshold
    if _preempted(situation) >= PREEMPTED:
        return None
    if waiting >= 1 and queued >= long_wait and usage < _full(situation):
        return Reason.QUEUE_BOUND, (
            f"Requests wait {format_duration(queued)} on average ({waiting:g} now) although live "
            f"requests hold only {usage:.0%} of the KV blocks."
        )
    return None


def _capacity_bound(situation: Situation) -> Regime | None:
    seen = situation.observation
    usage = number_of(seen.kv_usage)
    if usage is None:
        return Reason.UNKNOWN, f"KV-cache usage is unknown: {_why(seen.kv_usage)}"
    waiting, preemptions = number_of(seen.waiting) or 0.0, number_of(seen.preemptions) or 0.0
    violated = [each for each in situation.objectives[1:] if each.met is False]
    full = usage >= _full(situation) and (waiting >= 1 or preemptions > 0)
    if full or violated or _preempted(situation) >= PREEMPTED:
        limits = "".join(f" {each.message}." for each in violated)
        return Reason.CAPACITY_BOUND, (
            f"Live requests hold {usage:.0%} of the KV blocks, {waiting:g} wait, "
            f"{preemptions:.2g} preemptions a second.{limits}"
        )
    return None


def _preempted(situation: Situation) -> float:
    """Preemptions a request, of the hottest engine; 0 where they are not known."""
    rate, ttft = number_of(situation.observation.preemptions), situation.ttft
    if not rate or ttft is None or not ttft.requests:
        return 0.0
    return rate * situation.window * len(situation.observation.engines) / ttft.requests


def _full(situation: Situation) -> float:
    """From which share of KV blocks held by live requests on an engine has no room (0..FULL)."""
    prompt = number_of(situation.observation.prompt_tokens_per_request)
    capacity = min((each.capacity_tokens or 0 for each in situation.observation.engines), default=0)
    if prompt is None or not capacity:
        return FULL
    return max(0.0, min(FULL, 1 - PROMPTS_LEFT * prompt / capacity))


def _reuse(situation: Situation) -> Regime | None:
    """ReuseLost, NoReuse, or Unknown where the engines do not show their evictions."""
    violated = situation.objectives[0].message
    evicted = situation.evictions
    if evicted is None:
        why = _why(situation.observation.evicted_lru)
        return Reason.UNKNOWN, f"{violated}; whether cached blocks are evicted is unknown: {why}"
    if evicted.total == 0:
        return Reason.NO_REUSE, f"{violated}, yet no cached block was evicted."
    fresh = _hardly_repeated(situation)
    if fresh:
        return Reason.NO_REUSE, f"{violated}; cached blocks were evicted, but {fresh}."
    region = f", {evicted.protected:.0f} of them protected" if evicted.protected else ""
    return Reason.REUSE_LOST, (
        f"{violated}; {evicted.total:.0f} cached blocks were evicted within the window{region}."
    )


def _hardly_repeated(situation: Situation) -> str:
    """In words: hardly any computed token had been cached before. Empty if not, or not known.

    The objective lets a share 1 - quantile of the requests take longer. If a smaller share of the
    computed tokens is computed again, it is not lost reuse that makes the tail. Half of it, since
    what is computed again is counted low.
    """
    seen, ttft = situation.observation, situation.policy.spec.slo.ttft
    again, rate = number_of(seen.recomputed_tokens), number_of(seen.uncached_tokens)
    if again is None or rate is None:
        return ""
    computed = rate * ttft.window
    if again >= (1 - float(ttft.quantile)) / 2 * computed:
        return ""
    return f"only {again:.0f} of {computed:.0f} computed prompt tokens had been cached before"


def _waiting(situation: Situation) -> float:
    return number_of(situation.observation.waiting) or 0.0


def _why(reading: Reading) -> str:
    return reading.message if isinstance(reading, Unknown) else "there is no traffic"


_CHECKS: tuple[Callable[[Situation], Regime | None], ...] = (
    _restarting,
    _unknown,
    _idle,
    _not_eligible,
    _settling,
    _stalled,
    _healthy,
    _borderline,
    _queue_bound,
    _capacity_bound,
    _reuse,
)
