"""The memory fraction as the engines show it, and what a step of it would buy.

Of the blocks that a step adds, a lower bound is known without trying: an engine's memory holds its
weights first and blocks with the rest, so blocks grow at least in proportion to the fraction.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from evictune.api.knobs import KnobValues
from evictune.api.observation import PodObservation, number_of
from evictune.api.quantity import format_fraction
from evictune.decide.situation import Situation

# Two texts of one number: engines print what a binary number makes of it.
_SAME = Decimal("0.0005")


@dataclass(frozen=True)
class Gain:
    """What a step buys each engine: at least so many blocks more.

    covers: the share (0..1) of what waiting requests need that these hold; None if unknown.
    """

    blocks: int
    now: int
    covers: float | None

    @property
    def text(self) -> str:
        """For people."""
        share = self.blocks / self.now if self.now else 0.0
        told = f"at least {self.blocks} KV blocks more in each engine ({share:.1%})"
        if self.covers is None:
            return told
        return f"{told}, {self.covers:.0%} of what waiting requests need"


def allows(situation: Situation, values: KnobValues) -> bool:
    """Whether spec.knobs allows this memory fraction; the manifest's own it always does."""
    if values.fraction is None:
        return True
    bounds = situation.fractions
    return bounds is not None and bounds.minimum <= values.fraction <= bounds.maximum


def of_pod(situation: Situation, pod: str) -> Decimal | None:
    """What every rank of a pod shows to be in force; None: nothing, or not the same."""
    return _one(engine.fraction for engine in situation.observation.engines if engine.pod == pod)


def in_force(situation: Situation) -> Decimal | None:
    """What every ready engine shows to be in force; None: nothing, or not the same."""
    return _one(engine.fraction for engine in situation.observation.engines)


def manifest(situation: Situation) -> Decimal | None:
    """What every pod's own command line says; None: it is not shown, or not the same."""
    return _one(
        pod.memory.manifest if pod.memory else None
        for pod in situation.observation.pods
        if pod.ready
    )


def has(situation: Situation, pod: PodObservation, values: KnobValues) -> bool | None:
    """Whether a pod serves with the fraction of these values; None: it does not show it."""
    wanted = values.fraction
    if wanted is None:
        wanted = pod.memory.manifest if pod.memory else None
    shown = of_pod(situation, pod.name)
    if wanted is None or shown is None:
        return None
    return same(wanted, shown)


def same(one: Decimal, other: Decimal) -> bool:
    """Whether two fractions are one, but for how they are written."""
    return abs(one - other) < _SAME


def misfit(situation: Situation) -> str | None:
    """Which engine has not the fraction in force that was kept, in words; None: all have it."""
    kept = situation.present.fraction
    if kept is None:
        return None
    for engine in situation.observation.engines:
        if engine.fraction is None or not same(engine.fraction, kept):
            shown = "none" if engine.fraction is None else format_fraction(engine.fraction)
            return (
                f"engine {engine.engine} of pod {engine.pod} shows memory fraction {shown}, "
                f"not {format_fraction(kept)}: it takes that when it restarts"
            )
    return None


def gain_of(situation: Situation, present: Decimal, target: Decimal) -> Gain | None:
    """What the step buys; None where an engine does not show its blocks."""
    engines = situation.observation.engines
    blocks = min((engine.blocks or 0 for engine in engines), default=0)
    if not blocks or not present:
        return None
    more = int(blocks * (target - present) / present)
    return Gain(more, blocks, _covered(situation, more, blocks))


def _covered(situation: Situation, more: int, blocks: int) -> float | None:
    """The share of the blocks that waiting requests need, each as many as a running one holds.

    Preempted requests wait too: where none is seen to wait, one may.
    """
    seen = situation.observation
    usage, running, waiting = (number_of(r) for r in (seen.kv_usage, seen.running, seen.waiting))
    if usage is None or running is None or waiting is None or running < 1:
        return None
    engines = len(seen.engines)
    of_one = usage * blocks * engines / running
    return min(1.0, more * engines / (max(1.0, waiting) * of_one)) if of_one else None


def _one(found: Iterable[Decimal | None]) -> Decimal | None:
    shown = list(found)
    first = shown[0] if shown else None
    if first is None or any(each is None or not same(each, first) for each in shown):
        return None
    return first
