"""The orders of eviction of the policies that choose among leaves, by definition.

Imports nothing of what it checks. Each order is told what happens to blocks, is shown the
candidates, and looks at all of them; queues are searched from their end. Slow, but easy to believe.
With every block a candidate, the queues are the published algorithms.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

LINEAR, QUADRATIC = 1.0, 0.25  # seconds; sums of such numbers are exact
BLOCK = 4  # tokens


@dataclass
class Event:
    """Something happens to a block: see `evictune_policies.algorithms.operations`."""

    block: int
    content: int
    depth: int
    request: int
    tokens: int
    now: float


class Order(Protocol):
    """What is asked of an order of eviction."""

    def start(self, event: Event) -> None: ...
    def hit(self, event: Event) -> None: ...
    def free(self, event: Event) -> None: ...
    def victim(self, candidates: set[int]) -> int: ...


@dataclass
class Note:
    """What is known of a block since it was filled."""

    content: int
    depth: int
    hits: int = 0
    first_hit: float = 0.0
    key: tuple[float, int] = (0.0, 0)


def prefill(cached: int, new: int) -> float:
    """Seconds to compute new tokens after cached ones."""
    return LINEAR * new + QUADRATIC * new * (new + 2 * cached) / 2


Formula = Callable[["Keyed", Note, Event], float]


@dataclass
class Keyed:
    """Gives a block its key when it is freed; the smallest goes, the earliest among equals."""

    formula: Formula
    notes: dict[int, Note] = field(default_factory=dict)
    clock: float = 0.0
    frees: int = 0
    found: dict[int, int] = field(default_factory=dict)  # by request: hits since it was admitted
    asked: dict[int, int] = field(default_factory=dict)  # by content, of all time
    costs: dict[int, list[float]] = field(default_factory=dict)  # by content, of all time

    def start(self, event: Event) -> None:
        self.notes[event.block] = Note(event.content, event.depth)
        self._ask(event)
        cached = self.found[event.request] * BLOCK
        new = event.tokens - cached
        self.costs.setdefault(event.content, []).append(prefill(cached, new) / new)

    def hit(self, event: Event) -> None:
        note = self.notes[event.block]
        note.first_hit = note.first_hit if note.hits else event.now
        note.hits += 1
        self._ask(event)
        self.found[event.request] += 1

    def _ask(self, event: Event) -> None:
        if event.depth == 0:
            self.found[event.request] = 0
        self.asked[event.content] = self.asked.get(event.content, 0) + 1

    def free(self, event: Event) -> None:
        self.frees += 1
        note = self.notes[event.block]
        note.key = (self.formula(self, note, event), self.frees)

    def victim(self, candidates: set[int]) -> int:
        block = min(candidates, key=lambda block: self.notes[block].key)
        self.clock = max(self.clock, self.notes.pop(block).key[0])
        return block


def lfu(order: Keyed, note: Note, event: Event) -> float:
    return 1 + note.hits


def lfu_aging(order: Keyed, note: Note, event: Event) -> float:
    return order.clock + 1 + note.hits


def frequency_cost(order: Keyed, note: Note, event: Event) -> float:
    seconds = max(1.0, event.now - note.first_hit)
    return note.hits / seconds * float((note.depth + 1) * BLOCK) ** 2


def greedy_dual_size(order: Keyed, note: Note, event: Event) -> float:
    return order.clock + prefill(note.depth * BLOCK, BLOCK)


def gdsf(order: Keyed, note: Note, event: Event) -> float:
    return order.clock + (1 + note.hits) * prefill(note.depth * BLOCK, BLOCK)


def pgdsf(order: Keyed, note: Note, event: Event) -> float:
    costs = order.costs[note.content]
    return order.clock + order.asked[note.content] * (sum(costs) / len(costs))


@dataclass
class S3FIFO:
    """Queues are lists, oldest first."""

    capacity: int
    small: list[int] = field(default_factory=list)
    main: list[int] = field(default_factory=list)
    ghosts: list[int] = field(default_factory=list)
    uses: dict[int, int] = field(default_factory=dict)
    contents: dict[int, int] = field(default_factory=dict)
    has_evicted: bool = False

    def start(self, event: Event) -> None:
        small_is_full = len(self.small) >= int(self.capacity * 0.1)
        to_main = event.content in self.ghosts or (not self.has_evicted and small_is_full)
        if event.content in self.ghosts:
            self.ghosts.remove(event.content)
        self.ghosts = self.ghosts[max(0, len(self.ghosts) - int(self.capacity * 0.9)) :]
        (self.main if to_main else self.small).append(event.block)
        self.uses[event.block] = 0
        self.contents[event.block] = event.content

    def hit(self, event: Event) -> None:
        self.uses[event.block] += 1

    def free(self, event: Event) -> None:
        pass

    def victim(self, candidates: set[int]) -> int:
        self.has_evicted = True
        main_size = self.capacity - int(self.capacity * 0.1)
        main_first = len(self.main) > main_size or not self.small
        searches = [self._from_small, self._from_main, self._from_small, self._from_main]
        for search in searches[1 if main_first else 0 :]:
            block = search(candidates)
            if block is not None:
                del self.contents[block]
                return block
        raise AssertionError("no candidates")

    def _from_small(self, candidates: set[int]) -> int | None:
        for block in list(self.small):
            if block not in candidates:
                continue
            self.small.remove(block)
            if self.uses[block] < 2:
                content = self.contents[block]
                if list(self.contents.values()).count(content) == 1:
                    self.ghosts.append(content)
                return block
            self.main.append(block)
            self.uses[block] = 0
        return None

    def _from_main(self, candidates: set[int]) -> int | None:
        while any(block in candidates for block in self.main):
            block = next(block for block in self.main if block in candidates)
            self.main.remove(block)
            if self.uses[block] == 0:
                return block
            self.main.append(block)
            self.uses[block] = min(3, self.uses[block]) - 1
        return None


@dataclass
class Sieve:
    """The queue is a list, oldest first."""

    queue: list[int] = field(default_factory=list)
    marked: set[int] = field(default_factory=set)
    hand: int | None = None  # a block

    def start(self, event: Event) -> None:
        self.queue.append(event.block)

    def hit(self, event: Event) -> None:
        self.marked.add(event.block)

    def free(self, event: Event) -> None:
        pass

    def victim(self, candidates: set[int]) -> int:
        at = 0 if self.hand is None else self.queue.index(self.hand)
        while self.queue[at] not in candidates or self.queue[at] in self.marked:
            if self.queue[at] in candidates:
                self.marked.remove(self.queue[at])
            at = (at + 1) % len(self.queue)
        block = self.queue.pop(at)
        self.hand = self.queue[at] if at < len(self.queue) else None
        return block


FORMULAS = {
    "lfu": lfu,
    "lfu-aging": lfu_aging,
    "frequency-cost": frequency_cost,
    "greedy-dual-size": greedy_dual_size,
    "gdsf": gdsf,
    "pgdsf": pgdsf,
}


def order_of(policy: str, capacity_blocks: int) -> Order:
    """A policy's order, at the beginning."""
    if policy == "s3-fifo":
        return S3FIFO(capacity_blocks)
    if policy == "sieve":
        return Sieve()
    return Keyed(FORMULAS[policy])
