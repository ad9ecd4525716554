"""A target's world as a formula: faults by script, and the operator's own `decide` about it.

Where `tests.support.plant` simulates every request, this is a curve: the tail under a xi. A tick
costs a fraction of a millisecond, so that weeks pass in seconds. What survives a tick is what the
status would hold: memory goes through it each time.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from evictune.api.decision import Decision, DecisionRecord, Memory
from evictune.api.knobs import STOCK_LRU, KnobDocument, KnobValues
from evictune.api.observation import Observation, TargetState, Unknown, Value
from evictune.api.policy import EvictionPolicy, FleetMode, Mode
from evictune.api.reasons import Reason
from evictune.api.status import memory_from_status, status_of
from evictune.decide import decide

from tests.support.situations import NOW, make_engine, make_policy, observe, ttft

AWAY = Unknown(Reason.SOURCE_UNAVAILABLE, "timed out")


@dataclass(frozen=True)
class Curve:
    """The tail in seconds: `best` at xi from `low` to `high`, `stock` elsewhere.

    Below `low` more is protected than fits; above `high` hardly anything is protected.
    """

    stock: float = 0.6
    best: float = 0.2
    low: int = 400
    high: int = 1500

    def tail(self, values: KnobValues) -> float:
        """Under these values."""
        xi = values.xi_tokens
        return self.best if xi is not None and self.low <= xi <= self.high else self.stock

    def evicted(self, values: KnobValues) -> dict[str, Value]:
        """Blocks by region."""
        xi = values.xi_tokens
        region = "lru" if xi is None else "protected" if xi < self.low else "tel_safe"
        counts = {f"evicted_{name}": Value(0.0) for name in ("lru", "protected", "tel_safe")}
        return counts | {f"evicted_{region}": Value(500.0)}


@dataclass
class Faults:
    """What is wrong at the moment; a script turns these from tick to tick."""

    source_away: bool = False
    api_away: bool = False
    rolling: bool = False
    deaf: set[int] = field(default_factory=set)
    conflict: str = ""
    fleet: FleetMode = FleetMode.AUTO
    dies_before_effects: bool = False
    document_lost: bool = False
    status_lost: bool = False
    clock_behind: float = 0.0


Script = Callable[["Fleet", Faults], None]


@dataclass
class Engine:
    """One engine and the document as it last read it."""

    values: KnobValues = STOCK_LRU
    revision: int = 0


class Fleet:
    """One target and its operator. `tick` lets one interval pass."""

    def __init__(
        self,
        curve: Curve,
        *,
        replicas: int = 2,
        noise: float = 0.0,
        seed: int = 0,
        policy: EvictionPolicy | None = None,
    ) -> None:
        self.curve, self.noise, self.replicas = curve, noise, replicas
        self.policy = policy or make_policy()
        self.now = self.started = NOW
        self.faults = Faults()
        self.memory = Memory()
        self.document: KnobDocument | None = None
        self.engines = [Engine() for _ in range(replicas)]
        self.records: list[DecisionRecord] = []
        self.requests = 400.0
        self.random = random.Random(seed)
        self.last: Decision | None = None

    def run(self, seconds: float, script: Script | None = None) -> None:
        """Let time pass, tick by tick."""
        end = self.now + seconds
        while self.now < end:
            self.faults = Faults()
            if script:
                script(self, self.faults)
            self.tick()

    def tick(self) -> None:
        """One tick of the operator, and the time until the next."""
        self._follow()
        faults = self.faults
        if faults.document_lost:
            self.document = None
        if faults.status_lost:
            self.memory = Memory()
        if not faults.api_away:
            now = self.now - faults.clock_behind
            seen = self.observe()
            decision = decide(self.policy, self.memory, seen, now)
            self.check(seen, decision, now)
            self.last = decision
            self.records.extend(decision.audit)
            self.memory = memory_from_status(status_of(self.policy, decision, seen, now))
            if not faults.dies_before_effects:
                for effect in decision.effects:
                    expires = now + effect.ttl
                    self.document = KnobDocument(effect.revision, effect.values, expires)
        self.now += self.policy.spec.behavior.interval

    def observe(self) -> Observation:
        """The readings now: the slowest engine's tail, all engines' evictions."""
        faults = self.faults
        worst = max(self.engines, key=lambda each: self.curve.tail(each.values))
        tail = self.curve.tail(worst.values) * max(0.3, self.random.gauss(1.0, self.noise))
        ready = self.replicas - int(faults.rolling)
        return observe(
            ttft=AWAY if faults.source_away else ttft(tail, requests=self.requests),
            engines=tuple(
                make_engine(each.values, each.revision, pod=f"chat-8b-{number}")
                for number, each in enumerate(self.engines)
            ),
            target=TargetState(True, self.replicas, ready, rollout_in_progress=faults.rolling),
            document=self.document,
            conflict=faults.conflict,
            fleet=faults.fleet,
            **self.curve.evicted(worst.values),
        )

    def scale(self, replicas: int) -> None:
        """Other pods: new ones start on stock LRU."""
        self.replicas = replicas
        kept = self.engines[:replicas]
        self.engines = kept + [Engine() for _ in range(replicas - len(kept))]

    def check(self, seen: Observation, decision: Decision, now: float) -> None:
        """What never happens, at every tick of every simulation."""
        fleet, spec = seen.fleet, self.policy.spec
        if decision.effects:
            assert spec.mode is Mode.AUTO
            assert fleet is not FleetMode.RECOMMEND
            assert not seen.conflict
        begun, before = decision.memory.pending, self.memory.pending
        if begun is None or (before and before.revision == begun.revision) or begun.revert_of:
            return
        assert fleet is FleetMode.AUTO
        assert not isinstance(seen.ttft, Unknown)
        assert not seen.target.rollout_in_progress
        last = self.memory.last_change_time
        assert last is None or now - min(last, now) >= spec.behavior.cooldown or last > now
        knobs = spec.knobs.tlru
        assert knobs is not None
        xi = begun.change_to.xi_tokens
        assert xi is None or knobs.xi_tokens.minimum <= xi <= knobs.xi_tokens.maximum

    def changes(self, since: float = 0.0) -> int:
        """How many changes were begun, reverts included, from `since` on."""
        return sum(
            record.reason is Reason.INTENDED and record.time >= since for record in self.records
        )

    @property
    def xi(self) -> int | None:
        """What is applied."""
        return self.memory.applied.values.xi_tokens if self.memory.applied else None

    def _follow(self) -> None:
        document = self.document
        for number, engine in enumerate(self.engines):
            if number in self.faults.deaf:
                continue
            if document is None or document.expires <= self.now:
                engine.values, engine.revision = STOCK_LRU, 0
            else:
                engine.values, engine.revision = document.values, document.revision
