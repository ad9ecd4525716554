"""A toy engine to drive `decide` with: one pool of KV blocks, T-LRU, one request at a time.

It models what the loop acts on and nothing else: which blocks a prompt hits, what is evicted from
which region, and a TTFT made of a fixed cost and the uncached tokens. Conversations come back in
turn, each followed by one-shot prompts, as in the measured load this project's demo replays.
"""

from __future__ import annotations

import bisect
import itertools
import math
import random
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from evictune.api.decision import Decision, DecisionRecord, Memory, WriteKnobs
from evictune.api.knobs import STOCK_LRU, KnobDocument, KnobValues
from evictune.api.observation import (
    EngineObservation,
    Idle,
    Interval,
    Observation,
    QuantileReading,
    Reading,
    TargetState,
    Unknown,
    Value,
)
from evictune.api.policy import EvictionPolicy
from evictune.api.reasons import Reason
from evictune.decide import decide

BLOCK = 32
# Tokens of an answer.
ANSWER = 8
# Histogram bounds in seconds, 4 % apart: fine enough for any threshold.
BUCKETS = tuple(0.01 * 1.04**step for step in range(200))

Block = tuple[str, int]


@dataclass
class Pool:
    """Cached blocks between requests, in eviction order; `capacity` in blocks."""

    capacity: int
    values: KnobValues = STOCK_LRU
    regions: dict[str, OrderedDict[Block, int]] = field(
        default_factory=lambda: {"tel-safe": OrderedDict(), "protected": OrderedDict()}
    )

    def serve(self, prompt: list[Block], length: int) -> tuple[int, dict[str, int]]:
        """(blocks that had to be computed, evictions by region) of one request."""
        hits = 0
        while hits < len(prompt) and any(prompt[hits] in region for region in self._lists):
            hits += 1
        history = {block: self._take(block) for block in prompt}
        evicted = self._make_room(len(prompt))
        for block in reversed(prompt):
            self._place(block, max(length, history[block]))
        return len(prompt) - hits, evicted

    @property
    def _lists(self) -> Iterable[OrderedDict[Block, int]]:
        return self.regions.values()

    def _take(self, block: Block) -> int:
        """Out of its region; the longest request that held it, 0 if it is not cached."""
        return max(region.pop(block, 0) for region in self._lists)

    def turn(self, values: KnobValues) -> None:
        """Put other values in force: the blocks are sorted anew."""
        self.values = values
        old = [item for region in self._lists for item in region.items()]
        for region in self._lists:
            region.clear()
        for block, history in old:
            self._place(block, history)

    def _place(self, block: Block, history: int) -> None:
        self.regions["tel-safe" if self._is_safe(block, history) else "protected"][block] = history

    def _is_safe(self, block: Block, history: int) -> bool:
        if self.values.xi_tokens is None:
            return False
        return block[1] * BLOCK >= history + (self.values.q_hat_tokens or 0) - self.values.xi_tokens

    def _make_room(self, blocks: int) -> dict[str, int]:
        evicted = {"tel-safe": 0, "protected": 0, "lru": 0}
        excess = sum(map(len, self._lists)) + blocks - self.capacity
        for _ in range(excess):
            name = "tel-safe" if self.regions["tel-safe"] else "protected"
            self.regions[name].popitem(last=False)
            evicted["lru" if self.values.stock else name] += 1
        return evicted


@dataclass(frozen=True)
class Served:
    """One request: when its prefill ended, and what it cost."""

    time: float
    ttft: float
    prompt_tokens: int
    uncached_tokens: int
    evicted: dict[str, int]


@dataclass
class Load:
    """Conversations in turn, each over a document of its own, `one_shots` prompts after each turn.

    Every turn adds `growth` tokens; after `turns` turns a new session over the same document
    begins. Conversation i starts i * `stagger` turns into its session. Lengths in tokens.
    """

    conversations: int
    document: int = 1200
    growth: int = 60
    turns: int = 12
    stagger: int = 5
    one_shots: int = 6
    one_shot_tokens: int = 200

    def requests(self) -> Iterator[list[Block]]:
        """The blocks of each prompt, for ever."""
        shots = itertools.count()
        for turn in itertools.count():
            for number in range(self.conversations):
                yield self._turn(number, turn + number * self.stagger)
                for _ in range(self.one_shots):
                    yield self._one_shot(f"shot-{self.conversations}-{next(shots)}")

    def _turn(self, number: int, turn: int) -> list[Block]:
        session, position = divmod(turn, self.turns)
        document = self.document // BLOCK
        blocks = (self.document + position * self.growth) // BLOCK
        said = f"conversation-{number}-{session}"
        return [(f"document-{number}" if i < document else said, i) for i in range(blocks)]

    def _one_shot(self, name: str) -> list[Block]:
        return [(name, index) for index in range(self.one_shot_tokens // BLOCK)]


class Plant:
    """The engine, its traffic, and an operator's loop around `decide`. Seconds everywhere."""

    def __init__(
        self,
        policy: EvictionPolicy,
        load: Load,
        *,
        capacity_tokens: int = 6400,
        tokens_per_second: float = 2700.0,
        overhead: float = 0.03,
        delay: float = 1.0,
        noise: float = 0.0,
    ) -> None:
        self.policy = policy
        self.pool = Pool(capacity_tokens // BLOCK)
        self.rate, self.overhead, self.delay = tokens_per_second, overhead, delay
        self.noise, self._random = noise, random.Random(7)
        self.now = self.started = 1_800_000_000.0
        self.memory = Memory()
        self.document: KnobDocument | None = None
        self.revision = 0
        self.served: list[Served] = []
        self.records: list[DecisionRecord] = []
        self.decisions: list[Decision] = []
        self._delivery: tuple[float, KnobDocument] | None = None
        self._due = self.now
        self.load(load)

    def load(self, load: Load) -> None:
        """Change the traffic."""
        self._requests = load.requests()

    def run(self, seconds: float) -> None:
        """Serve, and tick when due."""
        end = self.now + seconds
        while self.now < end:
            if self._delivery and self.now >= self._delivery[0]:
                self._deliver(self._delivery[1])
            self._serve_one()
            if self.now >= self._due:
                self.tick()

    def tick(self) -> Decision:
        """One tick of the operator."""
        decision = decide(self.policy, self.memory, self.observe(), self.now)
        self.memory = decision.memory
        self.records.extend(decision.audit)
        self.decisions.append(decision)
        for effect in decision.effects:
            self._write(effect)
        interval = self.policy.spec.behavior.interval
        self._due = self.now + min(interval, decision.next_check or interval)
        return decision

    def changes(self, *reasons: Reason) -> list[DecisionRecord]:
        """The records of these reasons."""
        return [record for record in self.records if record.reason in reasons]

    def observe(self) -> Observation:
        """The readings over the SLO's window."""
        since = self.now - self.policy.spec.slo.ttft.window
        recent = itertools.takewhile(lambda each: each.time > since, reversed(self.served))
        window = list(recent)
        seconds = self.now - max(since, self.started)
        prompts = sum(each.prompt_tokens for each in window)
        uncached = sum(each.uncached_tokens for each in window)
        prefill = sum(each.ttft - self.overhead / 2 for each in window)
        quiet: Reading = Idle()
        return Observation(
            target=TargetState(True, 1, 1),
            engines=(self._engine(),),
            ttft=self._quantile(window),
            queue_time=Value(self.overhead / 2),
            kv_usage=Value(0.1),
            preemptions=Value(0.0),
            hit_ratio=Value(1 - uncached / prompts) if prompts else quiet,
            running=Value(1.0),
            waiting=Value(0.0),
            prefill_rate=Value(uncached / prefill) if uncached else quiet,
            uncached_tokens=Value(uncached / seconds) if seconds else quiet,
            prompt_tokens_per_request=Value(prompts / len(window)) if window else quiet,
            document=self.document,
            **{
                f"evicted_{name.replace('-', '_')}": Value(
                    float(sum(each.evicted[name] for each in window))
                )
                for name in ("protected", "tel-safe", "lru")
            },
        )

    def tail(self, seconds: float) -> float:
        """The objective's quantile of TTFT over the last `seconds`."""
        values = sorted(each.ttft for each in self.served if each.time > self.now - seconds)
        return values[math.ceil(float(self.policy.spec.slo.ttft.quantile) * len(values)) - 1]

    def _engine(self) -> EngineObservation:
        return EngineObservation(
            "engine-0",
            "0",
            self.pool.values,
            self.revision,
            True,
            "",
            BLOCK,
            self.pool.capacity * BLOCK,
            Value(0.1),
        )

    def _quantile(self, window: list[Served]) -> QuantileReading:
        objective = self.policy.spec.slo.ttft
        if not window:
            return Idle()
        if len(window) < objective.min_requests:
            return Unknown(Reason.TOO_FEW_SAMPLES, f"{len(window)} requests")
        values = sorted(each.ttft for each in window)
        value = values[math.ceil(float(objective.quantile) * len(values)) - 1]
        upper = bisect.bisect_left(BUCKETS, value)
        above = sum(each > objective.threshold for each in values) / len(values)
        lower = BUCKETS[upper - 1]
        return Interval(
            lower, BUCKETS[upper], (lower + BUCKETS[upper]) / 2, len(values), above, above
        )

    def _serve_one(self) -> None:
        prompt = next(self._requests)
        length = len(prompt) * BLOCK
        computed, evicted = self.pool.serve(prompt, length + ANSWER)
        uncached = computed * BLOCK
        ttft = self.overhead + uncached / self.rate
        ttft *= max(0.5, self._random.gauss(1.0, self.noise))
        self.now += ttft
        self.served.append(Served(self.now, ttft, length, uncached, evicted))
        self.now += 0.04

    def _write(self, effect: WriteKnobs) -> None:
        self.document = KnobDocument(effect.revision, effect.values, self.now + effect.ttl)
        if effect.revision != self.revision:
            self._delivery = (self.now + self.delay, self.document)

    def _deliver(self, document: KnobDocument) -> None:
        self.pool.turn(document.values)
        self.revision, self._delivery = document.revision, None
