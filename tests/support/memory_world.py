"""Engines whose memory fraction can be changed, as decide sees them: pods, plugin, document.

Each pod does what the plugin does: it restarts once for a word, takes the fraction of its entry
when it starts, drops one whose start fails, and keeps what it has while nobody says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from evictune.api.decision import Decision, DecisionRecord, Memory
from evictune.api.knobs import KnobDocument, KnobValues, PodKnobs
from evictune.api.observation import (
    MemoryAttempt,
    Observation,
    PodObservation,
    TargetState,
    Unknown,
    Value,
)
from evictune.api.policy import EvictionPolicy
from evictune.api.reasons import Reason
from evictune.api.status import memory_from_status, status_of
from evictune.decide import decide

from tests.support.situations import NOW, make_engine, make_policy, observe, ttft

MANIFEST = Decimal("0.85")
# Of a pod's memory so much holds weights; blocks share the rest.
WEIGHTS = Decimal("0.40")
# Seconds that an engine serves until the plugin trusts its fraction.
CONFIRMED_AFTER = 60.0
AWAY = Unknown(Reason.NO_READY_ENGINES, "not ready")
MEMORY = {"gpuMemoryUtilization": {"min": "0.80", "max": "0.94", "step": "0.02"}}
HEALTHY = {"ttft": ttft(0.1), "kv_usage": Value(0.3), "preemptions": Value(0.0)}
HOLDING = {"kv_usage": Value(0.97), "running": Value(40.0), "waiting": Value(3.0)}


def memory_policy(disruption: dict[str, Any] | None = None, **spec: Any) -> EvictionPolicy:
    """A policy with both knobs; by default engines may be restarted where there are two."""
    allowed = {"policy": "WhenRedundant"} if disruption is None else disruption
    behavior = {"interval": "30s", "disruption": allowed, **spec.pop("behavior", {})}
    knobs = {**MEMORY, **spec.pop("knobs", {})}
    return make_policy(knobs=knobs, behavior=behavior, **spec)


@dataclass
class MemoryPod:
    """One pod. back_at: when an engine that was ended serves again."""

    name: str
    uid: str
    fraction: Decimal = MANIFEST
    restarts: int = 0
    back_at: float | None = None
    started: float = 0.0
    state: str = "none"
    tried: Decimal | None = None
    tried_at: int = 0
    words: set[str] = field(default_factory=set)
    values: KnobValues = field(default_factory=lambda: KnobValues(None))
    revision: int = 0

    @property
    def ready(self) -> bool:
        """Whether it serves."""
        return self.back_at is None


class MemoryPods:
    """The pods of a target as the plugin and kubelet make them follow the document.

    starts_fail: fractions with which no engine starts. dies_after: seconds that an engine lives.
    load_seconds: what a start takes.
    """

    def __init__(self, names: Iterable[str], now: float) -> None:
        self.now = now
        self.document: KnobDocument | None = None
        self.pods = [MemoryPod(name, f"uid-of-{name}") for name in names]
        self.starts_fail: set[Decimal] = set()
        self.dies_after: dict[Decimal, float] = {}
        self.load_seconds = 60.0

    def advance(self, seconds: float) -> None:
        """Time passes: pods read the document, restart, come back, or die."""
        for _ in range(max(1, round(seconds / 10))):
            self.now += min(10.0, seconds)
            for pod in self.pods:
                self._live(pod)

    def _live(self, pod: MemoryPod) -> None:
        if pod.back_at is not None:
            if self.now >= pod.back_at:
                pod.back_at, pod.started = None, self.now
            return
        entry = self.entry_of(pod)
        if pod.state == "trying" and self.now - pod.started >= CONFIRMED_AFTER:
            pod.state = "confirmed"
        life = self.dies_after.get(pod.fraction)
        died = life is not None and self.now - pod.started >= life
        asked = entry is not None and entry.restart not in ("", *pod.words)
        if died or asked:
            self._end(pod)
        else:
            document = self._valid()
            pod.values = KnobValues(None) if entry is None else entry.values.order
            pod.revision = document.revision if document else 0

    def _end(self, pod: MemoryPod) -> None:
        """The engine ends, and is started anew with what the document says then."""
        pod.restarts += 1
        pod.back_at = self.now + self.load_seconds
        entry = self.entry_of(pod)
        asked = entry is not None and entry.restart not in ("", *pod.words)
        if entry is not None and entry.restart:
            pod.words.add(entry.restart)
        if pod.state == "trying" and not asked:
            pod.state = "dropped"  # ended before it was confirmed: not again at that revision
        if entry is None and self.document is not None and pod.state == "confirmed":
            return  # expired: what has proven itself stays
        self._start(pod, None if entry is None else entry.values.fraction)

    def _start(self, pod: MemoryPod, wanted: Decimal | None) -> None:
        revision = self.document.revision if self.document else 0
        dropped = pod.state == "dropped" and (pod.tried, pod.tried_at) == (wanted, revision)
        pod.tried_at = revision
        if wanted is None or wanted == MANIFEST:
            pod.fraction, pod.state, pod.tried = MANIFEST, "none", None
        elif wanted in self.starts_fail or dropped:
            pod.restarts += 0 if dropped else 1
            pod.fraction, pod.state, pod.tried = MANIFEST, "dropped", wanted
        else:
            pod.fraction, pod.state, pod.tried = wanted, "trying", wanted

    def crash(self, number: int) -> None:
        """An engine ends by itself."""
        if self.pods[number].ready:
            self._end(self.pods[number])

    def replace_pod(self, number: int) -> None:
        """Somebody's rollout: another pod of that number, with what the document says."""
        old = self.pods[number]
        new = MemoryPod(old.name, f"{old.uid}'", started=self.now)
        self.pods[number] = new
        entry = self.entry_of(new)
        if entry is not None and entry.restart:
            new.words.add(entry.restart)
        self._start(new, None if entry is None else entry.values.fraction)

    def _valid(self) -> KnobDocument | None:
        document = self.document
        return document if document is not None and document.expires > self.now else None

    def entry_of(self, pod: MemoryPod) -> PodKnobs | None:
        """What the document in force says to a pod."""
        document = self._valid()
        if document is None:
            return None
        return document.pods.get(pod.name, PodKnobs(document.values))


class MemoryWorld(MemoryPods):
    """One target and its operator.

    worse, useless: fractions under which the tail is longer, or the same.
    """

    def __init__(self, pods: int = 2, policy: EvictionPolicy | None = None) -> None:
        super().__init__([f"chat-8b-{number}" for number in range(pods)], NOW)
        self.policy = policy or memory_policy()
        self.memory = Memory()
        self.worse: set[Decimal] = set()
        self.useless: set[Decimal] = set()
        self.readings: dict[str, Any] = dict(HOLDING)
        self.target: dict[str, Any] = {}
        self.elsewhere = ""
        self.records: list[DecisionRecord] = []
        self.last: Decision | None = None
        self.asked: list[tuple[str, float]] = []

    def observe(self) -> Observation:
        """What a tick sees."""
        ready = [pod for pod in self.pods if pod.ready]
        away = len(self.pods) - len(ready)
        state: dict[str, Any] = {"rollout_in_progress": away > 0, **self.target}
        defaults: dict[str, Any] = {
            "target": TargetState(True, len(self.pods), len(ready), **state),
            "engines": tuple(self._engine(pod) for pod in ready),
            "pods": tuple(self._pod(pod) for pod in self.pods),
            "document": self.document,
            "ttft": ttft(0.6),
            "preemptions": Value(0.3),
            "restart_elsewhere": self.elsewhere,
        }
        return observe(**{**defaults, **self.readings})

    def _engine(self, pod: MemoryPod) -> Any:
        blocks = int(10_000 * (pod.fraction - WEIGHTS))
        return make_engine(
            pod.values, pod.revision, pod=pod.name, fraction=pod.fraction, blocks=blocks
        )

    def _pod(self, pod: MemoryPod) -> PodObservation:
        if not pod.ready:
            return PodObservation(pod.name, pod.uid, False, pod.restarts, None, AWAY, AWAY, AWAY)
        attempt = MemoryAttempt("", MANIFEST, pod.state, pod.tried, pod.tried_at)
        more = float(pod.fraction - MANIFEST)
        tail, preemptions = 0.6 - 4 * more, 0.3 - 3 * more
        if pod.fraction in self.useless:
            tail, preemptions = 0.6, 0.3
        if pod.fraction in self.worse:
            tail, preemptions = 0.9, 0.6
        cold = self.now - pod.started < 20 and pod.started > 0
        hits = Value(0.05 if cold else 0.5)
        return PodObservation(
            pod.name, pod.uid, True, pod.restarts, attempt,
            ttft(tail), hits, Value(max(0.0, preemptions)),
        )  # fmt: skip

    def tick(self, *, carried_out: bool = True) -> Decision:
        """One tick. carried_out False: the operator is killed after the status was written."""
        seen = self.observe()
        told = decide(self.policy, self.memory, seen, self.now)
        self.memory = memory_from_status(status_of(self.policy, told, seen, self.now))
        self.records.extend(told.audit)
        self.last = told
        if carried_out:
            for effect in told.effects:
                self._write(effect)
        return told

    def _write(self, effect: Any) -> None:
        for name, entry in effect.pods.items():
            if entry.restart and (name, entry.restart) not in [(n, w) for n, w in self._words()]:
                self.asked.append((name, self.now))
        self.document = KnobDocument(
            effect.revision, effect.values, self.now + effect.ttl, pods=dict(effect.pods)
        )

    def _words(self) -> list[tuple[str, str]]:
        found = [(pod.name, word) for pod in self.pods for word in pod.words]
        pods = self.document.pods if self.document else {}
        return found + [(name, entry.restart) for name, entry in pods.items()]

    def run(self, seconds: float, until: Reason | None = None) -> None:
        """Tick at the policy's interval; stop early when something was told."""
        end = self.now + seconds
        while self.now < end:
            told = self.tick()
            if until is not None and until in [record.reason for record in told.audit]:
                return
            self.advance(self.policy.spec.behavior.interval)

    # What came of it.

    @property
    def told(self) -> list[Reason]:
        """All transitions but the diagnosis'."""
        found = [record.reason for record in self.records]
        return [reason for reason in found if reason is not Reason.REGIME_CHANGED]

    @property
    def fractions(self) -> list[str]:
        """What the pods have in force."""
        return [str(pod.fraction) for pod in self.pods]

    @property
    def held(self) -> list[Reason]:
        """What held back at the last tick."""
        return [reason for reason, _ in self.last.holds] if self.last else []
