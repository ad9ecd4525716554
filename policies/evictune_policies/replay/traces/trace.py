"""A request trace in memory: what every reader makes and every replay takes.

Contents are numbered 0..distinct-1 (`intern`): two blocks have the same number if, and only if,
they hold the same tokens after the same tokens. A content's parent always has the smaller number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evictune_policies.algorithms.catalog import Chains
from evictune_policies.algorithms.pool import NONE

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

MAX_CONTENTS = 2**31 - 1  # they are numbered in 32 bits


@dataclass(frozen=True)
class Trace:
    """n requests in order of arrival.

    name: what to call it in reports.
    block_tokens: tokens that one content stands for.
    arrival: seconds since the trace began, ascending; [n].
    prompt_tokens, output_tokens: [n].
    starts: request r's contents are contents[starts[r]:starts[r + 1]]; [n + 1].
    contents: in order of the tokens, prompt then output, known_tokens of them: a block may hold the
        prompt's end and the output's beginning, and a request's last one may be partial; [total].
    known_tokens: how many of a request's prompt and output tokens `contents` covers; [n].
    parent: the content before; NONE for the first of a chain; [distinct].
    depth: a content's index in its chain, from 0; [distinct].
    previous: the request that was the turn before, an index; NONE: there was none, or it is not
        known; [n].
    think: seconds from the finish of `previous` to this arrival; NaN: `arrival` is fixed; [n].
    tenant: index into `tenants`; [n].
    final: whether it is the last turn of its conversation, as far as the trace shows; [n].
    repairs: what was wrong with the source and was repaired, and how often
        (docs/reference/trace-format.md).
    """

    name: str
    block_tokens: int
    arrival: Float64
    prompt_tokens: Int64
    output_tokens: Int64
    starts: Int64
    contents: Int32
    known_tokens: Int64
    parent: Int32
    depth: Int32
    previous: Int32
    think: Float64
    tenant: Int32
    final: NDArray[np.bool_]
    tenants: tuple[str, ...] = ("all",)
    repairs: Mapping[str, int] = field(default_factory=dict)

    @property
    def requests(self) -> int:
        """How many requests there are: n."""
        return len(self.arrival)

    @property
    def distinct(self) -> int:
        """How many contents there are."""
        return len(self.parent)

    @property
    def tokens(self) -> Int64:
        """Prompt and output tokens per request."""
        return self.prompt_tokens + self.output_tokens

    @property
    def prompt_blocks(self) -> Int64:
        """Blocks that hold a request's prompt, a partial last one counted."""
        return -(-self.prompt_tokens // self.block_tokens)

    @property
    def whole_blocks(self) -> Int64:
        """How many of a request's contents are whole."""
        return self.known_tokens // self.block_tokens

    def chains(self) -> Chains:
        """What a cache could keep of each request, as policies that look ahead take it.

        Whole contents, whose tokens are all computed: the last token of an output never is.
        """
        computed = self.prompt_tokens + np.maximum(self.output_tokens - 1, 0)
        whole = np.minimum(self.known_tokens, computed) // self.block_tokens
        index = np.arange(len(self.contents)) - np.repeat(self.starts[:-1], np.diff(self.starts))
        keep = index < np.repeat(whole, np.diff(self.starts))
        return Chains(
            starts=_offsets(whole),
            contents=self.contents[keep],
            parent=self.parent,
            depth=self.depth,
            prompt_tokens=self.prompt_tokens,
            tokens=self.tokens,
            final=self.final,
        )

    def with_block_tokens(self, block_tokens: int) -> Trace:
        """The same requests in smaller blocks: content c becomes the contents from c * parts on.

        Raises:
            ValueError: block_tokens does not divide the trace's own, or there would be more
                contents than can be numbered.
        """
        if block_tokens == self.block_tokens:
            return self
        if block_tokens < 1 or self.block_tokens % block_tokens:
            raise ValueError(
                f"block size {block_tokens}: the trace {self.name!r} identifies blocks of "
                f"{self.block_tokens} tokens, which can be divided but not joined; "
                f"use one of {', '.join(map(str, _divisors(self.block_tokens)))}"
            )
        parts = self.block_tokens // block_tokens
        if self.distinct * parts > MAX_CONTENTS:
            raise ValueError(
                f"block size {block_tokens}: {self.distinct * parts:,} blocks are more than the "
                f"{MAX_CONTENTS:,} that can be numbered; use a larger block or a part of the trace"
            )
        counts = -(-self.known_tokens // block_tokens)
        starts = _offsets(counts)
        index = np.arange(starts[-1]) - np.repeat(starts[:-1], counts)
        source = np.repeat(self.starts[:-1], counts) + index // parts
        contents = self.contents[source].astype(np.int64) * parts + index % parts
        part = np.arange(parts)
        parent = (np.arange(self.distinct) * parts)[:, None] + part - 1
        parent[:, 0] = np.where(self.parent == NONE, NONE, (self.parent + 1) * parts - 1)
        depth = (self.depth * parts)[:, None] + part
        return replace(
            self,
            block_tokens=block_tokens,
            starts=starts,
            contents=contents.astype(np.int32),
            parent=parent.ravel().astype(np.int32),
            depth=depth.ravel().astype(np.int32),
        )

    def sliced(self, part: slice) -> Trace:
        """Some consecutive requests as a trace of its own, which begins with the first of them.

        A request whose turn before is left out has no `previous`; its arrival is fixed.
        Raises ValueError for a step other than 1.
        """
        first, end, step = part.indices(self.requests)
        if step != 1:
            raise ValueError(f"slice step {step}: only consecutive requests make a trace")
        chosen = slice(first, max(first, end))
        contents = self.contents[self.starts[chosen.start] : self.starts[chosen.stop]]
        used = np.unique(contents)  # ascending, and every content's parent is among them
        number = np.full(self.distinct + 1, NONE, np.int32)  # [NONE] is NONE
        number[used] = np.arange(len(used), dtype=np.int32)
        arrival = self.arrival[chosen]
        previous = np.maximum(self.previous[chosen] - chosen.start, NONE).astype(np.int32)
        return replace(
            self,
            **self._per_request(chosen),
            arrival=arrival - arrival[:1].sum(),
            starts=self.starts[chosen.start : chosen.stop + 1] - self.starts[chosen.start],
            contents=number[contents],
            parent=number[self.parent[used]],
            depth=self.depth[used],
            previous=previous,
            think=np.where(previous == NONE, np.nan, self.think[chosen]),
        )

    def superposed(self, copies: int) -> Trace:
        """As many copies of the trace at once: that many times the load.

        Copies share no contents, not even a system prompt: they are other people's conversations.
        The copies follow each other by equal parts of the mean time between two requests, so that
        they do not arrive in the same instants. Raises ValueError for less than one copy.
        """
        if copies < 1:
            raise ValueError(f"{copies} copies: at least 1 is needed")
        if self.distinct * copies > MAX_CONTENTS:
            raise ValueError(
                f"{copies} copies: {self.distinct * copies:,} blocks are more than the "
                f"{MAX_CONTENTS:,} that can be numbered; use fewer copies or larger blocks"
            )
        copy = np.repeat(np.arange(copies), self.requests)
        span = self.arrival[-1:].sum() / max(1, self.requests - 1)
        arrival = np.tile(self.arrival, copies) + copy * (span / copies)
        order = np.argsort(arrival, kind="stable")
        place = np.empty(len(order), np.int32)
        place[order] = np.arange(len(order), dtype=np.int32)
        source, copy = order % max(1, self.requests), copy[order]
        before = self.previous[source]
        counts = np.diff(self.starts)[source]
        starts = _offsets(counts)
        index = np.arange(starts[-1]) - np.repeat(starts[:-1], counts)
        contents = self.contents[np.repeat(self.starts[source], counts) + index]
        offset = np.repeat(np.arange(copies) * self.distinct, self.distinct)
        parent = np.tile(self.parent, copies)
        return replace(
            self,
            **self._per_request(source),
            name=f"{self.name} x {copies}",
            arrival=arrival[order],
            starts=starts,
            contents=(contents + np.repeat(copy * self.distinct, counts)).astype(np.int32),
            parent=np.where(parent == NONE, NONE, parent + offset).astype(np.int32),
            depth=np.tile(self.depth, copies),
            previous=np.where(before == NONE, NONE, place[before + copy * self.requests]),
            think=self.think[source],
        )

    def sped_up(self, factor: float) -> Trace:
        """The same requests in 1/factor of the time: arrivals and think times are divided.

        Raises ValueError unless factor is positive and finite.
        """
        if not 0 < factor < np.inf:
            raise ValueError(f"speed-up {factor}: a positive number is needed")
        return replace(
            self,
            name=f"{self.name}, {factor:g} times as fast",
            arrival=self.arrival / factor,
            think=self.think / factor,
        )

    def _per_request(self, chosen: slice | Int64) -> dict[str, Any]:
        """The chosen requests' values that mean the same in any trace."""
        names = ("prompt_tokens", "output_tokens", "known_tokens", "tenant", "final")
        return {name: getattr(self, name)[chosen] for name in names}


def _offsets(counts: Int64) -> Int64:
    """Where each of these many begins, and where the last ends."""
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def _divisors(number: int) -> list[int]:
    """All divisors, ascending."""
    return [candidate for candidate in range(1, number + 1) if number % candidate == 0]
