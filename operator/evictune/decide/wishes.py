"""What decide would set, before any guardrail is asked."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from evictune.api.knobs import KnobValues
from evictune.api.observation import Value
from evictune.api.policy import MAX_TOKENS, TLRUKnobs, TokenRange
from evictune.api.reasons import Reason
from evictune.decide.candidates import Choice, Search, choose, grid
from evictune.decide.situation import Situation, count_of

# Where no engine says how large its blocks are. All engines' sizes divide or are this.
DEFAULT_BLOCK_TOKENS = 32
_VERDICTS = (Reason.KEPT, Reason.NO_DIFFERENCE, Reason.INCONCLUSIVE, Reason.REVERTED)
# Regimes in which no reading says what a change would do.
NOTHING_TO_JUDGE = (Reason.UNKNOWN, Reason.IDLE, Reason.NOT_ELIGIBLE, Reason.STALLED)
_UNPROVEN = (Reason.NO_DIFFERENCE, Reason.INCONCLUSIVE)


@dataclass(frozen=True)
class Wish:
    """target: within bounds; uncapped: without them. exhausted: nothing better is left to try.

    covers: of a memory fraction, the share (0..1) of what waiting requests need that it adds.
    """

    target: KnobValues
    uncapped: KnobValues
    reason: Reason
    basis: str
    exhausted: bool = False
    covers: float | None = None


def wish(situation: Situation, regime: Reason) -> Wish | None:
    """The value wanted, or None: nothing is wanted, or it cannot be told which."""
    knobs = situation.knobs
    if knobs is None or regime in NOTHING_TO_JUDGE:
        return None
    repair = within(situation.present, knobs)
    if repair != situation.present:
        basis = "the value in force lies outside spec.knobs"
        return Wish(repair, situation.present, Reason.AT_BOUND, basis)
    if regime is not Reason.REUSE_LOST:
        return None
    return _searched(situation, knobs)


def within(values: KnobValues, knobs: TLRUKnobs) -> KnobValues:
    """The nearest order of eviction within bounds; stock LRU is always allowed."""
    if values.xi_tokens is None:
        return values
    q_hat = values.q_hat_tokens
    return replace(
        values,
        xi_tokens=_clamp(values.xi_tokens, knobs.xi_tokens),
        q_hat_tokens=_clamp(
            knobs.q_hat_tokens.minimum if q_hat is None else q_hat, knobs.q_hat_tokens
        ),
    )


def _clamp(value: int, bounds: TokenRange) -> int:
    return min(max(value, bounds.minimum), bounds.maximum)


def _searched(situation: Situation, knobs: TLRUKnobs) -> Wish | None:
    present, search = situation.present, _search(situation, knobs.xi_tokens)
    if search.reach is not None and search.reach <= knobs.q_hat_tokens.minimum:
        # What a turn adds was never cached, so no eviction order saves it.
        basis = (
            f"only {search.reach:.0f} tokens can be prefilled within the target, and a turn adds "
            f"{knobs.q_hat_tokens.minimum} (qHat)"
        )
        return Wish(present, present, Reason.REUSE_LOST, basis, exhausted=True)
    choice = choose(search)
    if choice is None:
        return None
    free = choose(_search(situation, TokenRange(1, MAX_TOKENS))) or choice
    # qHat: the lower bound. T-LRU protects H + qHat - xi, so within one conversation a larger qHat
    # is a smaller xi; what growth is usual, the readings do not say.
    q_hat = knobs.q_hat_tokens.minimum
    return Wish(
        target=_values(choice, q_hat).at(present.fraction),
        uncapped=_values(free, q_hat).at(present.fraction),
        reason=Reason.REUSE_LOST,
        basis=choice.basis + _growth(situation, q_hat),
        exhausted=choice.exhausted,
    )


def _growth(situation: Situation, q_hat: int) -> str:
    """What prompts bring that had never been cached, where that is more than qHat allows for.

    A mean, and of first prompts too: an upper bound of what a turn adds, not its quantile.
    """
    seen, ttft = situation.observation, situation.ttft
    rate, again = seen.uncached_tokens, seen.recomputed_tokens
    if ttft is None or not isinstance(rate, Value) or not isinstance(again, Value):
        return ""
    computed = rate.value * (ttft.seconds or situation.window)
    tokens = max(0.0, computed - again.value) / ttft.requests
    if tokens <= q_hat:
        return ""
    return f"; a prompt brings {tokens:.0f} tokens that were never cached, more than qHat {q_hat}"


def _values(choice: Choice, q_hat: int) -> KnobValues:
    return KnobValues(None) if choice.xi is None else KnobValues(choice.xi, q_hat)


def _search(situation: Situation, bounds: TokenRange) -> Search:
    ttft = situation.ttft
    estimate = ttft.estimate if ttft and math.isfinite(ttft.upper) else math.inf
    ceiling = _prefillable(situation, estimate * (1 - situation.tolerance))
    return Search(
        grid=grid(bounds, block_tokens(situation)),
        current=situation.present.xi_tokens,
        overflowing=situation.overflowing,
        reach=_prefillable(situation, situation.policy.spec.slo.ttft.threshold),
        worthwhile=math.inf if ceiling is None else ceiling,
        estimate=estimate,
        tolerance=situation.tolerance,
        proven=_is_proven(situation),
        tried={values.xi_tokens: record for values, record in situation.tried.items()},
    )


def _is_proven(situation: Situation) -> bool:
    """Whether nothing says that the present values were kept without a gain."""
    applied = situation.memory.applied
    return not any(
        applied is not None
        and record.decision_id == applied.decision_id
        and record.reason in _UNPROVEN
        for record in situation.memory.decisions
    )


def block_tokens(situation: Situation) -> int:
    """The largest block of any engine, in tokens."""
    sizes = [engine.block_tokens for engine in situation.observation.engines]
    return max((size for size in sizes if size), default=DEFAULT_BLOCK_TOKENS)


def _prefillable(situation: Situation, seconds: float) -> float | None:
    """Tokens that can be prefilled so that TTFT is `seconds`: prefill rate x (it - queueing).

    None where the rate is unknown.
    """
    rate = situation.observation.prefill_rate
    if not isinstance(rate, Value) or rate.value <= 0:
        return None
    queued = count_of(situation.observation.queue_time) or 0.0
    return rate.value * max(0.0, seconds - queued)


def is_steady(situation: Situation) -> bool:
    """Whether the whole window lies within this regime.

    A verdict has just waited for a window; it counts unless another regime came in between, for
    then the traffic, or its luck, changed after it.
    """
    memory, since = situation.memory, situation.now - situation.window
    regime = memory.regime
    if regime is not None and regime.name is Reason.REUSE_LOST and regime.since <= since:
        return True
    changes = 0
    for record in reversed(memory.decisions):
        if record.reason in _VERDICTS:
            return record.time >= since and changes <= 1
        changes += record.reason is Reason.REGIME_CHANGED
    return False
