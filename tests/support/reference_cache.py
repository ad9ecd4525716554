"""A prefix cache and its eviction orders by definition, as plainly as they can be written.

Imports nothing of what it checks. A content is the tuple of all labels up to its block; a block is
an object; whom to evict is found by looking at every free block. Slow, but easy to believe.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

Content = tuple[int, ...]


class Request(Protocol):
    """What is read of a request: see `plain_replay.PlainRequest`."""

    @property
    def blocks(self) -> tuple[int, ...]: ...
    @property
    def prompt_tokens(self) -> int: ...
    @property
    def tokens(self) -> int: ...


@dataclass(eq=False)
class Block:
    """A block with content.

    Attributes:
        holders: The running requests that hold it.
        filled: When it was filled; freed: when the last holder let go. Both count blocks.
        freed_at: The same in seconds.
        lengths: H of each finished request that held it.
        visitors: The finished requests that held it to their end.
        awaited_by: Preempted requests that held it and have not finished since.
        key: Its place in the order of eviction.
    """

    content: Content
    filled: int
    holders: set[int] = field(default_factory=set)
    freed: int = 0
    freed_at: float = 0.0
    lengths: list[int] = field(default_factory=list)
    visitors: list[int] = field(default_factory=list)
    awaited_by: set[int] = field(default_factory=set)
    key: tuple[float, ...] = ()


Rule = Callable[["ReferenceCache", Block], tuple[float, ...]]


class ReferenceCache:
    """A pool of blocks.

    Args:
        rule: Its value for a block is taken when the block is freed; the free block with the
            smallest is evicted.
        suffix_first: Whether a request frees its last block first.
        seconds_to_live: A block that is free for so long is dropped.

    Attributes:
        hits: Blocks found, by request; of a preempted request, when it first started.
        evicted, expired: (request that needs the room, content).
        held: The blocks of the running requests.
        finishing: The finished request whose blocks are being freed.
    """

    def __init__(
        self,
        requests: Sequence[Request],
        capacity_blocks: int,
        block_tokens: int,
        rule: Rule,
        *,
        suffix_first: bool = True,
        seconds_to_live: float = float("inf"),
    ) -> None:
        self.requests = requests
        self.capacity_blocks = capacity_blocks
        self.block_tokens = block_tokens
        self.rule = rule
        self.suffix_first = suffix_first
        self.seconds_to_live = seconds_to_live
        self.blocks: list[Block] = []
        self.count = 0
        self.hits: dict[int, int] = {}
        self.evicted: list[tuple[int, Content]] = []
        self.expired: list[tuple[int, Content]] = []
        self.held: dict[int, list[Block]] = {}
        self.finishing: int | None = None

    def start(self, request: int, now: float) -> bool:
        """Admit a request; False: there is not enough room."""
        about = self.requests[request]
        for block in [b for b in self.blocks if not b.holders]:
            if now - block.freed_at >= self.seconds_to_live:
                self.blocks.remove(block)
                self.expired.append((request, block.content))
        whole = about.prompt_tokens // self.block_tokens
        contents = [about.blocks[: index + 1] for index in range(whole)]
        found: list[Block] = []
        for content in contents[: (about.prompt_tokens - 1) // self.block_tokens]:
            same = [block for block in self.blocks if block.content == content]
            if not same:
                break
            found.append(min(same, key=lambda block: block.filled))
        busy = sum(1 for block in self.blocks if block.holders or block in found)
        if busy + whole - len(found) > self.capacity_blocks:
            return False
        for block in found:
            block.holders.add(request)
        self.hits.setdefault(request, len(found))
        self.held[request] = found
        self._extend(request, contents[len(found) :])
        return True

    def finish(self, request: int, now: float) -> bool:
        """Add the output and end a request; False: the output has no room."""
        labels, mine = self.requests[request].blocks, self.held[request]
        output = [labels[: index + 1] for index in range(len(mine), len(labels))]
        if sum(1 for block in self.blocks if block.holders) + len(output) > self.capacity_blocks:
            return False
        self._extend(request, output)
        for block in self.blocks:
            if request in block.holders or request in block.awaited_by:
                block.lengths.append(self.requests[request].tokens)
            if request in block.holders:
                block.visitors.append(request)
            block.awaited_by.discard(request)
        self.finishing = request
        self._release(request, now)
        self.finishing = None
        return True

    def preempt(self, request: int, now: float) -> None:
        """A running request loses its blocks; it will be started again."""
        for block in self.held[request]:
            block.awaited_by.add(request)
        self._release(request, now)

    def _extend(self, request: int, contents: list[Content]) -> None:
        room = self.capacity_blocks - len(self.blocks)
        for _ in range(len(contents) - room):
            free = [block for block in self.blocks if not block.holders]
            victim = self.choose(free)
            self.blocks.remove(victim)
            self.evicted.append((request, victim.content))
        for content in contents:
            self.count += 1
            block = Block(content, filled=self.count, holders={request})
            self.blocks.append(block)
            self.held[request].append(block)
        assert len(self.blocks) <= self.capacity_blocks

    def choose(self, free: list[Block]) -> Block:
        """The block to evict."""
        return min(free, key=lambda block: block.key)

    def _release(self, request: int, now: float) -> None:
        blocks = self.held.pop(request)
        for block in reversed(blocks) if self.suffix_first else blocks:
            block.holders.remove(request)
            self.count += 1
            block.freed, block.freed_at = self.count, now
            block.key = self.rule(self, block)


def least_recent(cache: ReferenceCache, block: Block) -> tuple[float, ...]:
    """LRU: least recently freed first."""
    return (block.freed,)


def tail_optimized(xi: int, q_hat: int, longest: int) -> Rule:
    """T-LRU for a model that takes requests of up to ``longest`` tokens."""

    def rule(cache: ReferenceCache, block: Block) -> tuple[float, ...]:
        if block.awaited_by or not block.lengths:
            safe = xi >= longest + q_hat
        else:
            keep = max(0, max(block.lengths) + q_hat - xi)
            begins = (len(block.content) - 1) * cache.block_tokens
            safe = begins >= keep
        return (0 if safe else 1, block.freed)

    return rule


def continued_by(requests: Sequence[Request], request: int) -> list[int]:
    """Later requests of which this one is the turn before."""
    own = requests[request].blocks

    def before(later: int) -> int | None:
        """The latest of the longest chains that a request's own begins with."""
        chain = requests[later].blocks
        earlier = [
            (len(other.blocks), number)
            for number, other in enumerate(requests[:later])
            if other.blocks and other.blocks == chain[: len(other.blocks)]
        ]
        return max(earlier)[1] if earlier else None

    return [n for n in range(request + 1, len(requests)) if own and before(n) == request]


def foretold(xi: int, q_hat: int, final: Sequence[bool], *, lengths: bool) -> Rule:
    """End-aware T-LRU, or with ``lengths`` length-aware T-LRU."""

    def rule(cache: ReferenceCache, block: Block) -> tuple[float, ...]:
        requests, now = cache.requests, cache.finishing

        def goes_on(request: int) -> bool:
            """Whether its conversation has a turn later than the request that ends now."""
            assert now is not None
            if final[request]:
                return False
            following = continued_by(requests, request)
            return not following or any(n > now or goes_on(n) for n in following)

        def needs(request: int) -> int:
            own = requests[request].tokens
            following = continued_by(requests, request)
            if lengths and following:
                return max(0, max(requests[n].prompt_tokens for n in following) - xi)
            return own if lengths else max(0, own + q_hat - xi)

        if now is None:
            return (2, block.freed)
        if not any(goes_on(visitor) for visitor in block.visitors):
            return (0, block.freed)
        begins = (len(block.content) - 1) * cache.block_tokens
        safe = begins >= max(needs(visitor) for visitor in block.visitors)
        return (1 if safe else 2, block.freed)

    return rule


class ExpectedTailCache(ReferenceCache):
    """ET-LRU with an exponential next prompt, in classes of a quarter of q_hat.

    Args:
        xi, q_hat: Tokens.

    Attributes:
        silences: By request that was a next turn, as far as it is known.
    """

    def __init__(
        self,
        requests: Sequence[Request],
        capacity_blocks: int,
        block_tokens: int,
        xi: int,
        q_hat: int,
    ) -> None:
        super().__init__(requests, capacity_blocks, block_tokens, self._class_of)
        self.xi = xi
        self.q_hat = q_hat
        self.ended: dict[Content, float] = {}
        self.seen: set[int] = set()
        self.observed: dict[int, int] = {}
        self.silences: dict[int, float] = {}
        self.now = 0.0

    def start(self, request: int, now: float) -> bool:
        """Admit a request."""
        self.now = now
        self.observed[request] = 0
        return super().start(request, now)

    def finish(self, request: int, now: float) -> bool:
        """Add the output and end a request."""
        self.now = now
        blocks = self.requests[request].blocks
        done = super().finish(request, now)
        if done and blocks:
            self.ended[blocks] = now
        return done

    def _extend(self, request: int, contents: list[Content]) -> None:
        self._observe(request)
        super()._extend(request, contents)
        self._observe(request)

    def _observe(self, request: int) -> None:
        """What the newest request tells by the blocks that it has found or filled just now."""
        known = self.observed[request]
        blocks = [block.content for block in self.held[request][known:]]
        self.observed[request] += len(blocks)
        if blocks and request >= max(self.seen, default=0):
            self.seen.add(request)
            turns = [content for content in blocks if content in self.ended]
            if turns:
                self.silences[request] = self.now - self.ended[max(turns, key=len)]

    @staticmethod
    def _class_of(cache: ReferenceCache, block: Block) -> tuple[float, ...]:
        assert isinstance(cache, ExpectedTailCache)
        if cache.finishing is None:
            return (0, block.freed)
        beyond = (len(block.content) - 1) * cache.block_tokens + cache.xi - max(block.lengths)
        if cache.q_hat == 0:
            return (64 if beyond >= 0 else 0, block.freed)
        return (min(64, max(0, 4 * beyond // cache.q_hat)), block.freed)

    def choose(self, free: list[Block]) -> Block:
        """The block with the least probability to matter, by logarithms."""
        total = sum(self.silences.values())
        returns = len(self.silences)
        rate = (1 - returns / len(self.seen)) * returns / total if total > 0 else 0.0

        def worth(block: Block) -> tuple[float, ...]:
            if block.key[0] == 64:
                return (-float("inf"), 0, block.freed)
            return (rate * block.freed_at - block.key[0] / 4, -block.key[0], block.freed)

        return min(free, key=worth)
