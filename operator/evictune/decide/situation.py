"""What one call of decide looks at, with the few figures that several of its parts need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from evictune.api.decision import Baseline, DecisionRecord, Effect, Memory, Quarantined
from evictune.api.disruption import Disruption, FractionRange
from evictune.api.knobs import STOCK_LRU, KnobValues
from evictune.api.observation import (
    EngineObservation,
    Idle,
    Interval,
    Observation,
    Reading,
    Unknown,
    number_of,
)
from evictune.api.policy import EvictionPolicy, FleetMode, Mode, TLRUKnobs
from evictune.api.quantity import format_fraction
from evictune.api.reasons import Reason
from evictune.api.status_schema import MAX_QUARANTINE
from evictune.decide.objectives import Objective, judge
from evictune.decide.traffic import alike, fingerprint

Hold = tuple[Reason, str]

# A value that was left is tried again after this many cooldowns, an hour at the least; left again
# under like traffic, after twice as long, so that steady traffic sees ever fewer tries.
QUARANTINE_COOLDOWNS = 24
QUARANTINE_LEAST = 3600.0
QUARANTINE_MOST = 7 * 86400.0


@dataclass(frozen=True)
class Evictions:
    """Cached blocks evicted within the window, by region."""

    protected: float
    tel_safe: float
    lru: float

    @property
    def total(self) -> float:
        """Of all regions."""
        return self.protected + self.tel_safe + self.lru


@dataclass(frozen=True)
class Situation:
    """The arguments of decide. `now`: seconds since the epoch."""

    policy: EvictionPolicy
    memory: Memory
    observation: Observation
    now: float

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """TTFT first."""
        return judge(self.policy.spec, self.observation)

    @property
    def ttft(self) -> Interval | None:
        """The quantile, if it was read."""
        reading = self.observation.ttft
        return reading if isinstance(reading, Interval) else None

    @property
    def tolerance(self) -> float:
        """behavior.tolerance."""
        return float(self.policy.spec.behavior.tolerance)

    @property
    def window(self) -> float:
        """slo.ttft.window, seconds."""
        return self.policy.spec.slo.ttft.window

    @property
    def settle(self) -> float:
        """From acknowledgement to verdict, seconds: the effect builds up, then fills a window."""
        return self.policy.spec.behavior.settle + self.window

    @property
    def knobs(self) -> TLRUKnobs | None:
        """The bounds, if T-LRU may be turned."""
        return self.policy.spec.knobs.tlru

    @property
    def fractions(self) -> FractionRange | None:
        """The bounds of the memory fraction, if it may be turned."""
        return self.policy.spec.knobs.gpu_memory_utilization

    @property
    def disruption(self) -> Disruption:
        """How far engines may be restarted."""
        return self.policy.spec.behavior.disruption

    @property
    def may_write(self) -> bool:
        """Whether the knob document is ours to write or renew at all."""
        mode = self.policy.spec.mode
        return (
            mode is Mode.AUTO
            and not self.observation.fleet.limits(mode)
            and not self.observation.conflict
            and (self.knobs is not None or self.fractions is not None)
        )

    @property
    def suspended(self) -> Hold | None:
        """Why nothing is decided, while values in force stay and are renewed; None: it is."""
        if self.policy.spec.suspend:
            return Reason.SUSPENDED, "spec.suspend is true"
        if self.observation.fleet is FleetMode.SUSPEND:
            return Reason.FLEET_SWITCH, "the administrator suspends every policy (fleet.mode)"
        return None

    @property
    def unrest(self) -> float:
        """Seconds until pods that came, went or were replaced are warm and fill the window."""
        scale = self.memory.scale
        changed = scale.changed if scale else None
        return 0.0 if changed is None else max(0.0, changed + self.settle - self.now)

    @property
    def present(self) -> KnobValues:
        """The values that were last kept or restored."""
        return self.memory.applied.values if self.memory.applied else STOCK_LRU

    @property
    def evictions(self) -> Evictions | None:
        """None where the engines do not show them."""
        counts = [
            count_of(reading)
            for reading in (
                self.observation.evicted_protected,
                self.observation.evicted_tel_safe,
                self.observation.evicted_lru,
            )
        ]
        protected, tel_safe, lru = counts
        if protected is None or tel_safe is None or lru is None:
            return None
        return Evictions(protected, tel_safe, lru)

    @property
    def overflowing(self) -> bool:
        """Whether more is protected than fits: blocks are evicted from the protected region.

        A few are at any xi: those of conversations that ended. They must be more than the
        tolerance's share of all evictions to count.
        """
        evicted = self.evictions
        if evicted is None or evicted.total == 0:
            return False
        return evicted.protected > self.tolerance * evicted.total

    @property
    def fingerprint(self) -> str:
        """Of the traffic now."""
        return fingerprint(self.policy, self.observation)

    @property
    def tried(self) -> Mapping[KnobValues, Quarantined]:
        """Orders of eviction tried and left under like traffic, and not yet forgotten."""
        traffic = self.fingerprint
        return {
            each.values: each
            for each in sorted(self.memory.quarantine, key=lambda each: each.until)
            if each.until > self.now
            and each.values.fraction is None
            and alike(each.fingerprint, traffic)
        }

    @property
    def baseline(self) -> Baseline:
        """The readings now, for a verdict to compare with."""
        uncached = number_of(self.observation.uncached_tokens)
        return replace(self.baseline_with(self.ttft), uncached_tokens=uncached)

    def baseline_with(self, ttft: Interval | None) -> Baseline:
        """Of these first tokens alone: of all engines, or of one."""
        return Baseline(
            ttft_lower=ttft.lower if ttft else None,
            ttft_upper=ttft.upper if ttft else None,
            ttft_estimate=ttft.estimate if ttft else None,
            share_above=ttft.share_above if ttft else None,
            uncached_tokens=None,
            requests=ttft.requests if ttft else None,
            replicas=self.observation.target.desired_replicas,
            fingerprint=self.fingerprint,
        )

    def pause(self, times: int) -> float:
        """How long a value that was left `times` times stays in quarantine, seconds."""
        first = max(self.policy.spec.behavior.cooldown * QUARANTINE_COOLDOWNS, QUARANTINE_LEAST)
        return max(first, min(first * 2.0 ** min(times - 1, 32), QUARANTINE_MOST))

    def quarantined(self, values: KnobValues, reason: Reason) -> Quarantined:
        """The record of leaving an order of eviction now, with what is measured with it."""
        values = values.order
        traffic = self.fingerprint
        before = [
            each.times
            for each in self.memory.quarantine
            if each.values == values and alike(each.fingerprint, traffic)
        ]
        times = max(before, default=0) + 1
        return Quarantined(
            values=values,
            fingerprint=traffic,
            until=self.now + self.pause(times),
            reason=reason,
            ttft=self.ttft.estimate if self.ttft else None,
            too_small=self.overflowing and not values.stock,
            times=times,
        )


@dataclass(frozen=True)
class Step:
    """What a part of decide came to."""

    memory: Memory
    effects: tuple[Effect, ...] = ()
    records: tuple[DecisionRecord, ...] = ()
    holds: tuple[Hold, ...] = ()
    next_check: float | None = field(default=None)


def follows(engine: EngineObservation, values: KnobValues) -> bool:
    """Whether an engine shows that it has the order of eviction in force."""
    if engine.in_force is None:
        return False
    return engine.in_force == values.order or (engine.in_force.stock and values.stock)


def remember(memory: Memory, record: Quarantined) -> Memory:
    """Memory with one more value left; its older record of like traffic is replaced.

    Where there is no room, what may be tried again soonest goes.
    """
    kept = [
        each
        for each in memory.quarantine
        if each.values != record.values or not alike(each.fingerprint, record.fingerprint)
    ]
    while len(kept) >= MAX_QUARANTINE:
        kept.remove(min(kept, key=lambda each: each.until))
    return replace(memory, quarantine=(*kept, record))


def release(memory: Memory, values: KnobValues, now: float) -> Memory:
    """Memory in which the order of eviction is not in quarantine, since it is in force.

    How often it was left stays known for a while.
    """
    kept = (
        replace(each, until=min(each.until, now)) if each.values == values.order else each
        for each in memory.quarantine
    )
    return replace(memory, quarantine=tuple(kept))


def count_of(reading: Reading) -> float | None:
    """A counter's reading; no traffic is none of anything."""
    if isinstance(reading, Idle):
        return 0.0
    return None if isinstance(reading, Unknown) else reading.value


def show(values: KnobValues) -> str:
    """Values for people."""
    order = "stock LRU"
    if not values.stock:
        order = f"T-LRU with xi {values.xi_tokens}, qHat {values.q_hat_tokens}"
    return order if values.fraction is None else f"{order}, {show_fraction(values)}"


def show_fraction(values: KnobValues) -> str:
    """The memory fraction for people."""
    if values.fraction is None:
        return "the manifest's memory fraction"
    return f"memory fraction {format_fraction(values.fraction)}"


def identity(policy: EvictionPolicy, label: object, now: float) -> str:
    """A decision's identity: the same inputs give the same one."""
    return f"{policy.uid[:8]}-{label}-{int(now)}"


def sentence(text: str) -> str:
    """The text with a capital first letter."""
    return text[:1].upper() + text[1:]
