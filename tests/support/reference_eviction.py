"""The eviction order by definition, as plainly as it can be written.

Imports neither vLLM nor the plugin. Every question is answered from scratch by sorting, so that
this may be slow but is easy to believe. Lengths and positions are in tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

UNHASHED, TEL_SAFE, PROTECTED = range(3)


@dataclass
class Block:
    """What the definition knows of one block.

    Attributes:
        end: Tokens of the prefix up to and including this block; None without cached content.
        lengths: Lengths of the finished requests that held the block since it was filled.
        awaited_by: Unfinished requests that let go of the block and will come back for it.
        key: Place within its region: regions are sorted by it.
    """

    references: int = 0
    end: int | None = None
    lengths: list[int] = field(default_factory=list)
    awaited_by: set[str] = field(default_factory=set)
    region: int = UNHASHED
    key: tuple[int, ...] = (0,)


class ReferencePool:
    """Free blocks of one pool under LRU (xi None) or T-LRU.

    Args:
        free: Ids of the free blocks, first to be evicted first.
        block_size: Tokens in a block.
        max_length: The longest request the model takes.
    """

    def __init__(self, free: Sequence[int], block_size: int, max_length: int) -> None:
        self.block_size = block_size
        self.max_length = max_length
        self.xi: int | None = None
        self.q_hat = 0
        self.blocks = {number: Block(key=(place,)) for place, number in enumerate(free)}
        self.now = len(free)
        self.evicted = {"lru": 0, "tel-safe": 0, "protected": 0}

    def order(self) -> list[int]:
        """Ids of the free blocks, first to be evicted first."""
        free = [number for number, block in self.blocks.items() if block.references == 0]
        return sorted(free, key=lambda n: (self.blocks[n].region, self.blocks[n].key))

    def take(self, count: int) -> list[int]:
        """Hand out blocks to be filled anew."""
        taken = self.order()[:count]
        for number in taken:
            block = self.blocks[number]
            if block.end is not None:
                name = "tel-safe" if block.region == TEL_SAFE else "protected"
                self.evicted["lru" if self.xi is None else name] += 1
            self.blocks[number] = Block(references=1)
        return taken

    def touch(self, numbers: Iterable[int]) -> None:
        """One more request holds the blocks."""
        for number in numbers:
            self.blocks[number].references += 1

    def let_go(self, numbers: Iterable[int], request: str, length: int | None) -> None:
        """A request will hold these blocks no longer: it finished with ``length``, or it did not.

        The blocks themselves may be released later.
        """
        if length is None:
            for number in numbers:
                if self.blocks[number].end is not None:
                    self.blocks[number].awaited_by.add(request)
            return
        for number, block in self.blocks.items():
            if request in block.awaited_by:
                block.awaited_by.remove(request)
                block.lengths.append(length)
            if number in numbers:
                block.lengths.append(length)

    def release(self, ends: Sequence[tuple[int, int | None]]) -> None:
        """Drop one reference of each block.

        Args:
            ends: Block id and the tokens up to its end (None: no cached content), first to be
                evicted first.
        """
        self.now += len(ends)
        for place, (number, end) in enumerate(ends):
            block = self.blocks[number]
            block.references -= 1
            block.end = end
            if block.references == 0:
                block.region = self.region(block)
                # Without content: before all others, but in their order. Else: behind all others.
                block.key = (-self.now, place) if end is None else (self.now - len(ends) + place,)

    def lose_content(self, numbers: Iterable[int]) -> None:
        """Blocks lose their cached content where they are."""
        for number in numbers:
            self.blocks[number].end = None

    def reset(self) -> None:
        """All blocks, all of them free, lose their content; their order stays."""
        for place, number in enumerate(self.order()):
            self.blocks[number] = Block(key=(place,))

    def change(self, xi: int | None, q_hat: int) -> None:
        """Other knobs: all free blocks are sorted anew. The same knobs: nothing happens."""
        if (xi, q_hat) == (self.xi, self.q_hat):
            return
        worthless = [number for number in self.order() if self.blocks[number].end is None]
        self.xi, self.q_hat = xi, q_hat
        for place, number in enumerate(worthless):
            self.blocks[number].region, self.blocks[number].key = UNHASHED, (place,)
        for block in self.blocks.values():
            if block.references == 0 and block.end is not None:
                block.region = self.region(block)

    def region(self, block: Block) -> int:
        """The definition: keep B = max(0, H + q_hat - xi) tokens, in whole blocks."""
        if block.end is None:
            return UNHASHED
        if self.xi is None:
            return PROTECTED
        if block.awaited_by or not block.lengths:
            return TEL_SAFE if self.xi >= self.max_length + self.q_hat else PROTECTED
        keep = max(0, max(block.lengths) + self.q_hat - self.xi)
        start = block.end - self.block_size
        return TEL_SAFE if start >= keep else PROTECTED
