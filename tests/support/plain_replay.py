"""Drives a policy's plain operations, uncompiled: what a replay does, as plainly as can be.

Whole blocks only: a request's partial last block is not modelled. All blocks of a prompt are taken
and filled when the request starts, all blocks of its output right before it ends.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from evictune_policies.algorithms import operations
from evictune_policies.algorithms.catalog import Chains, Policy, Setting
from evictune_policies.algorithms.operations import Visit
from evictune_policies.algorithms.pool import NONE, clear, fill, new_pool


@dataclass(frozen=True)
class PlainRequest:
    """One request.

    Attributes:
        blocks: One label for each whole block, prompt then output. Two requests share a block when
            their labels agree up to and including it.
        prompt_tokens: May exceed the prompt's whole blocks by less than a block.
        tokens: Prompt and output: H.
        arrival, seconds: When it starts at the earliest, and how long it then runs.
        final: Whether its conversation ends with it.
        preempted: Whether it is preempted once, halfway, if others run at the same time.
    """

    blocks: tuple[int, ...]
    prompt_tokens: int
    tokens: int
    arrival: float = 0.0
    seconds: float = 1.0
    final: bool = False
    preempted: bool = False


@dataclass
class Outcome:
    """What came of a replay.

    Attributes:
        hits: Blocks found, by request; of a preempted request, when it first started.
        evicted: (request that needed the room, content lost), in order.
        expired: (request that was about to start, content lost), in order.
    """

    hits: dict[int, int] = field(default_factory=dict)
    evicted: list[tuple[int, int]] = field(default_factory=list)
    expired: list[tuple[int, int]] = field(default_factory=list)


def setting_of(
    requests: Sequence[PlainRequest], capacity_blocks: int, block_tokens: int, **others: Any
) -> Setting:
    """The setting for these requests. others: `xi_tokens`, `q_hat_tokens`, `cost`."""
    return Setting(capacity_blocks, block_tokens, chains_of(requests), **others)


def chains_of(requests: Sequence[PlainRequest]) -> Chains:
    """Number the contents 0, 1, ... in the order in which they first appear."""
    known: dict[tuple[int, int], int] = {}  # (content before, label) -> content
    parent: list[int] = []
    depth: list[int] = []
    contents: list[int] = []
    starts = [0]
    for request in requests:
        before = NONE
        for index, label in enumerate(request.blocks):
            content = known.setdefault((before, label), len(known))
            if content == len(parent):
                parent.append(before)
                depth.append(index)
            contents.append(content)
            before = content
        starts.append(len(contents))
    return Chains(
        starts=np.array(starts, np.int64),
        contents=np.array(contents, np.int32),
        parent=np.array(parent, np.int32),
        depth=np.array(depth, np.int32),
        prompt_tokens=np.array([request.prompt_tokens for request in requests], np.int64),
        tokens=np.array([request.tokens for request in requests], np.int64),
        final=np.array([request.final for request in requests], np.bool_),
    )


class PlainCache:
    """A pool under a policy, driven by requests that start, end and are preempted.

    Args:
        requests: All that will come.
        policy: Of the catalog.
        setting: Made from the same requests.
        numbering: All block numbers in the order in which they are first used; None: 0, 1, ...

    Attributes:
        outcome: So far.
        held: The blocks of the requests that run, by request, in the order of the chain.
    """

    def __init__(
        self,
        requests: Sequence[PlainRequest],
        policy: Policy,
        setting: Setting,
        numbering: Sequence[int] | None = None,
    ) -> None:
        chains = setting.chains
        self.requests = requests
        self.policy = policy
        self.setting = setting
        self.capacity_blocks = setting.capacity_blocks
        self.pool = new_pool(setting.capacity_blocks, chains.parent, chains.depth)
        self.state = policy.build(setting)
        order = range(setting.capacity_blocks) if numbering is None else numbering
        self.blank = list(reversed(order))
        self.held: dict[int, list[int]] = {}
        self.outcome = Outcome()
        self.step = 0

    def chain(self, request: int) -> list[int]:
        """All contents of a request, prompt then output."""
        starts = self.setting.chains.starts
        contents = self.setting.chains.contents[starts[request] : starts[request + 1]]
        return [int(content) for content in contents]

    def start(self, request: int, now: float) -> bool:
        """Admit a request, or one that was preempted again; False: there is not enough room."""
        self.step += 1
        about = self.requests[request]
        visit = Visit(now, self.step, request, about.prompt_tokens, 0)
        self._expire(request, now)
        size = self.setting.block_tokens
        prompt = self.chain(request)[: about.prompt_tokens // size]
        found = self._look_up(prompt[: (about.prompt_tokens - 1) // size])
        busy = {block for blocks in self.held.values() for block in blocks}
        if len(busy | set(found)) + len(prompt) - len(found) > self.setting.capacity_blocks:
            return False
        for block in found:
            operations.hit(self.state, self.pool, block, visit)
            self.pool.references[block] += 1
        self.outcome.hits.setdefault(request, len(found))
        self.held[request] = found
        self._extend(prompt[len(found) :], visit)
        return True

    def finish(self, request: int, now: float) -> bool:
        """Add the output and end a request; False: the output has no room, it runs on."""
        about = self.requests[request]
        output = self.chain(request)[len(self.held[request]) :]
        busy = {block for blocks in self.held.values() for block in blocks}
        if len(busy) + len(output) > self.setting.capacity_blocks:
            return False
        self.step += 1
        self._extend(output, Visit(now, self.step, request, about.tokens, 0))
        self._release(Visit(now, self.step, request, about.tokens, 1))
        return True

    def preempt(self, request: int, now: float) -> None:
        """A running request loses its blocks; it will be started again."""
        self.step += 1
        self._release(Visit(now, self.step, request, self.requests[request].prompt_tokens, 0))

    def _expire(self, request: int, now: float) -> None:
        while (block := operations.expired(self.state, self.pool, now)) != NONE:
            assert self.pool.references[block] == 0, "a held block expired"
            self.outcome.expired.append((request, clear(self.pool, block)))
            self.blank.append(block)

    def _look_up(self, chain: list[int]) -> list[int]:
        """The blocks of the longest resident prefix."""
        found = []
        for content in chain:
            block = int(self.pool.resident[content])
            if block == NONE:
                break
            found.append(block)
        return found

    def _extend(self, contents: list[int], visit: Visit) -> None:
        """Take blocks for these contents and fill them."""
        blocks = [self._take(visit.request) for _ in contents]
        self.held[visit.request].extend(blocks)
        for block, content in zip(blocks, contents, strict=True):
            fill(self.pool, block, content)
            operations.start(self.state, self.pool, block, visit)

    def _take(self, request: int) -> int:
        if self.blank:
            block = self.blank.pop()
        else:
            block = operations.victim(self.state, self.pool)
            assert 0 <= block < self.setting.capacity_blocks
            assert self.pool.references[block] == 0, "a held block was evicted"
            assert self.pool.content[block] != NONE, "a block without content was evicted"
            self.outcome.evicted.append((request, clear(self.pool, block)))
        self.pool.references[block] = 1
        return block

    def _release(self, visit: Visit) -> None:
        blocks = self.held.pop(visit.request)
        for block in reversed(blocks) if self.policy.suffix_first else blocks:
            self.pool.references[block] -= 1
            if self.pool.references[block] == 0:
                operations.free(self.state, self.pool, block, visit)
            else:
                operations.leave(self.state, self.pool, block, visit)


def replay_plain(
    requests: Sequence[PlainRequest],
    policy: Policy,
    setting: Setting,
    *,
    overlap: bool = False,
    numbering: Sequence[int] | None = None,
) -> Outcome:
    """Replay requests, in their order, against a policy.

    Args:
        requests: By arrival.
        policy: Of the catalog.
        setting: Of `setting_of` for the same requests.
        overlap: False: one request at a time. True: each runs for its `seconds`; whoever finds no
            room waits, and all behind it. When the outputs of those that run find none, the one
            that started last is preempted.
        numbering: As for `PlainCache`.

    Raises:
        ValueError: If a request is longer than the pool.
    """
    cache = PlainCache(requests, policy, setting, numbering)
    drive(cache, requests, overlap=overlap)
    return cache.outcome


class Cache(Protocol):
    """What a driver does to a cache. Each may say that there is not enough room."""

    capacity_blocks: int
    held: dict[int, Any]

    def start(self, request: int, now: float) -> bool:
        """Admit a request."""

    def finish(self, request: int, now: float) -> bool:
        """Add the output and end a request."""

    def preempt(self, request: int, now: float) -> None:
        """Take a running request's blocks away."""


def drive(cache: Cache, requests: Sequence[PlainRequest], *, overlap: bool) -> None:
    """Run requests through a cache; see `replay_plain`."""
    longest = max((len(request.blocks) for request in requests), default=0)
    if longest > cache.capacity_blocks:
        raise ValueError(f"a request of {longest} blocks, a pool of {cache.capacity_blocks}")
    if overlap:
        _overlapping(cache, requests)
        return
    for index, request in enumerate(requests):
        assert cache.start(index, request.arrival)
        assert cache.finish(index, request.arrival)


def _overlapping(cache: Cache, requests: Sequence[PlainRequest]) -> None:
    waiting = list(range(len(requests)))
    preempted: set[int] = set()
    ends: list[tuple[float, int]] = []  # a heap
    now = 0.0

    def preempt(request: int) -> None:
        cache.preempt(request, now)
        preempted.add(request)
        waiting.insert(0, request)

    while waiting or ends:
        if waiting and requests[waiting[0]].arrival <= now and cache.start(waiting[0], now):
            request = waiting.pop(0)
            halfway = requests[request].preempted and request not in preempted
            seconds = requests[request].seconds * (0.5 if halfway else 1.0)
            heapq.heappush(ends, (now + seconds, request))
            continue
        arrives = requests[waiting[0]].arrival if waiting else math.inf
        if now < arrives and (not ends or arrives < ends[0][0]):
            now = arrives
            continue
        now, request = heapq.heappop(ends)
        if requests[request].preempted and request not in preempted and len(cache.held) > 1:
            preempt(request)
            continue
        while not cache.finish(request, now):
            last = list(cache.held)[-1]
            preempt(last)
            if last == request:
                break
            ends = [end for end in ends if end[1] != last]
            heapq.heapify(ends)
