"""vLLM's free queue, cut into ordered regions.

Stock vLLM keeps the blocks nobody references in one linked list whose head is evicted first.
Here the same queue object holds several such lists, *regions*: eviction takes from the first
region that has blocks. A policy is nothing but the choice of the region a freed block joins.

What stock code asks of the queue stays true: the count is the count of all regions, the order
is that of the regions chained, and ``remove`` is stock's own, because unlinking a block does not
depend on the list it is in. While every block joins the last region, the order is stock's, block
for block: stock prepends blocks without a hash (the head of the first region) and appends those
with one (the tail of the last).
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise

from vllm.v1.core.block_pool import BlockPool
from vllm.v1.core.kv_cache_utils import FreeKVCacheBlockQueue, KVCacheBlock


class TrackedBlock(KVCacheBlock):  # type: ignore[misc]  # vLLM is not typed for us
    """A block with what a policy has to know of it.

    In slots of the block itself: a list indexed by block id would cost a cache miss for the id, one
    for the list and one for the number, on each of the hundreds of blocks of a request.

    Attributes:
        longest: In tokens: the largest length of any finished request that held the block since it
            was filled; 0 when there is none. True only while ``content`` is the block's hash.
        content: The hash of the block, the very object, when ``longest`` was last looked at.
            Filling makes another object, so that nothing has to be set back when a block is handed
            out.
        freed_at: Grows with time: when the block last joined the free blocks.
    """

    __slots__ = ("content", "freed_at", "longest")

    def __init__(self, block_id: int, pool: BlockPool | None = None) -> None:
        super().__init__(block_id, pool=pool)
        self.longest = 0
        self.content: bytes | None = None
        self.freed_at = 0


class Tally:
    """Counts evicted blocks. An object, because adding to an attribute is what costs least."""

    __slots__ = ("blocks",)

    def __init__(self) -> None:
        self.blocks = 0


class Region:
    """One linked list of free blocks, between two blocks that are never handed out.

    Attributes:
        tally: Counts the blocks with a hash that are handed out from here.
    """

    __slots__ = ("head", "tail", "tally")

    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self.head = TrackedBlock(block_id=-1)
        self.tail = TrackedBlock(block_id=-1)
        self.clear()

    def clear(self) -> None:
        """Forget the list. The blocks' own links are left as they are."""
        self.head.next_free_block = self.tail
        self.tail.prev_free_block = self.head

    def __iter__(self) -> Iterator[TrackedBlock]:
        block = self.head.next_free_block
        while block is not self.tail:
            yield block
            block = block.next_free_block

    def link(self, blocks: Iterable[TrackedBlock], after: TrackedBlock) -> None:
        """Insert blocks, in their order, behind a block of this list (or its head)."""
        before = after.next_free_block
        for block in blocks:
            block.prev_free_block = after
            after.next_free_block = block
            after = block
        after.next_free_block = before
        before.prev_free_block = after

    def append(self, blocks: Iterable[TrackedBlock]) -> None:
        """Insert blocks, in their order, at the end: evicted last."""
        self.link(blocks, self.tail.prev_free_block)


class RegionQueue(FreeKVCacheBlockQueue):  # type: ignore[misc]  # vLLM is not typed for us
    """Stock's queue interface over ordered regions.

    Args:
        blocks: The free blocks, first to be evicted first; all join the first region.
        tallies: One for each region, first to be evicted first.

    Attributes:
        regions: In eviction order.
        awaited: By block id: the requests that let go of the block and will come back for it.
            Forgotten, too, when the block is filled anew.
    """

    def __init__(self, blocks: list[TrackedBlock], tallies: Iterable[Tally]) -> None:
        super().__init__([])
        self.regions = tuple(Region(tally) for tally in tallies)
        for region, behind in pairwise(self.regions):
            region.tail.next_free_block = behind.head
        self.fake_free_list_head = self.regions[0].head
        self.fake_free_list_tail = self.regions[-1].tail
        self.awaited: dict[int, set[str]] = {}
        self.regions[0].append(blocks)
        self.num_free_blocks = len(blocks)

    def popleft(self) -> TrackedBlock:
        """Hand out the block that is first in eviction order.

        Raises:
            ValueError: When no block is free, as stock does.
        """
        if self.num_free_blocks == 0:
            raise ValueError("No free blocks available")
        return self.popleft_n(1)[0]

    def popleft_n(self, n: int) -> list[TrackedBlock]:
        """Hand out the n blocks that are first in eviction order."""
        assert self.num_free_blocks >= n
        self.num_free_blocks -= n
        if n != 1:
            return self._take_many(n)
        # A decoding request asks for one block at a time: no call, no loop over blocks.
        for region in self.regions:
            head = region.head
            block = head.next_free_block
            if block is not region.tail:
                following = block.next_free_block
                head.next_free_block = following
                following.prev_free_block = head
                block.prev_free_block = block.next_free_block = None
                if block._block_hash is not None:
                    region.tally.blocks += 1
                    if self.awaited:
                        self.awaited.pop(block.block_id, None)
                return [block]
        raise AssertionError("num_free_blocks is out of sync with the regions")

    def _take_many(self, n: int) -> list[TrackedBlock]:
        taken: list[TrackedBlock] = []
        for region in self.regions:
            if len(taken) < n and region.head.next_free_block is not region.tail:
                self._take(region, n - len(taken), taken)
        assert len(taken) == n, "num_free_blocks is out of sync with the regions"
        if self.awaited:
            for block in taken:
                self.awaited.pop(block.block_id, None)
        return taken

    def _take(self, region: Region, n: int, taken: list[TrackedBlock]) -> None:
        """Move up to n blocks from the head of a region to ``taken``."""
        head, tail = region.head, region.tail
        block = head.next_free_block
        unhashed = 0
        before = len(taken)
        for _ in range(n):
            if block is tail:
                break
            taken.append(block)
            if block._block_hash is None:
                unhashed += 1
            following = block.next_free_block
            block.prev_free_block = None
            block.next_free_block = None
            block = following
        region.tally.blocks += len(taken) - before - unhashed
        head.next_free_block = block
        block.prev_free_block = head

    def append(self, block: TrackedBlock) -> None:
        """Put a block at the end of the whole queue."""
        self.append_n([block])

    def append_n(self, blocks: list[TrackedBlock]) -> None:
        """Put blocks at the end of the whole queue, in their order."""
        self.append_to(self.regions[-1], blocks)

    def append_to(self, region: Region, blocks: list[TrackedBlock]) -> None:
        """Put blocks at the end of one region, in their order."""
        if blocks:
            region.append(blocks)
            self.num_free_blocks += len(blocks)

    def prepend_n(self, blocks: list[TrackedBlock]) -> None:
        """Put blocks at the front of the whole queue, in their order."""
        if blocks:
            self.regions[0].link(blocks, self.regions[0].head)
            self.num_free_blocks += len(blocks)

    def relink(self, blocks: Iterable[list[TrackedBlock]], tallies: Iterable[Tally]) -> None:
        """Put all free blocks into regions anew. Each list in eviction order."""
        for region, members, tally in zip(self.regions, blocks, tallies, strict=True):
            region.tally = tally
            region.clear()
            region.append(members)

    def forget(self) -> None:
        """No block has content any more: all join the first region, in their present order."""
        free = self.get_all_free_blocks()
        for region in self.regions:
            region.clear()
        self.regions[0].append(free)
        self.awaited.clear()

    def get_all_free_blocks(self) -> list[TrackedBlock]:
        """List all free blocks in eviction order."""
        return [block for region in self.regions for block in region]

    def iter_blocks_after(self, cursor: TrackedBlock | None) -> Iterator[TrackedBlock]:
        """Iterate free blocks in eviction order, behind ``cursor`` (None: from the first).

        As stock does, ends at once when ``cursor`` has left the queue.
        """
        block = self.regions[0].head if cursor is None else cursor
        while (block := block.next_free_block) is not None:
            if block.block_id >= 0:
                yield block
