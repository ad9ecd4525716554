"""Counts what is computed again: prompt tokens whose KV blocks had been cached and were evicted.

vLLM counts hits, but a miss looks the same to it whether the prompt is new or was evicted. Only the
second kind can be helped by another order of eviction, so the operator asks which it is.

At the end of a request its landmarks are remembered: the hashes of some of its blocks, always at
the same places, ever further apart. A hash stands for the whole prefix up to its block, so a later
request that fills such a block anew computes that prefix again. That takes two dozen look-ups for a
request of 500 blocks. What lies past the last landmark known is not counted: at most a fifth of the
prefix, or one block.
"""

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator, Sequence

from evictune_policies.engine.regions import TrackedBlock

# Those of some 5,000 long requests, or 30,000 short ones: 40 MB.
REMEMBERED = 131_072


def _places() -> Iterator[int]:
    place = 1
    while place < 2**24:
        yield place
        place += max(2, place // 4)


# How many blocks end at a landmark.
LANDMARKS = tuple(_places())


class RecomputeCounter:
    """What one KV cache manager computes again. Used from the scheduler's thread.

    Args:
        block_tokens: Tokens of a block.
        remembered: How many landmarks are; the oldest is forgotten first, until it is met again.

    Attributes:
        tokens: Counted so far. May be read from any thread.
    """

    def __init__(self, block_tokens: int, remembered: int = REMEMBERED) -> None:
        self.tokens = 0
        self._block_tokens = block_tokens
        self._limit = remembered
        self._seen: OrderedDict[bytes, None] = OrderedDict()

    def finished(self, blocks: Sequence[TrackedBlock]) -> None:
        """A request has finished. To be called before its blocks are freed.

        Args:
            blocks: In the order of its tokens; first those it hit, then those it filled.
        """
        full = len(blocks)
        while full and blocks[full - 1]._block_hash is None:
            full -= 1
        hits = bisect_left(blocks, True, hi=full, key=_is_filled_anew)
        known = self._known(blocks, full)
        if known > hits:
            self.tokens += (known - hits) * self._block_tokens

    def forget(self) -> None:
        """The cache was emptied on purpose: what follows is no consequence of evictions."""
        self._seen.clear()

    def _known(self, blocks: Sequence[TrackedBlock], full: int) -> int:
        """How many of the first blocks an earlier request had too; remembers all landmarks."""
        seen, known = self._seen, 0
        for landmark in LANDMARKS:
            if landmark > full:
                break
            content: bytes = blocks[landmark - 1]._block_hash
            if content in seen:
                known = landmark
            else:
                seen[content] = None
        while len(seen) > self._limit:
            seen.popitem(last=False)
        return known


def _is_filled_anew(block: TrackedBlock) -> bool:
    """Whether the block was filled since it was last freed, and not hit."""
    return block.content is not block._block_hash
