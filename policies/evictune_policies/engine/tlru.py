"""T-LRU on a vLLM block pool: which region a freed block joins.

Tail-optimized LRU (T-LRU, https://arxiv.org/abs/2510.15152) keeps of a conversation of H tokens
only what its next prompt needs to stay within xi uncached tokens. That prompt will be about
H + q_hat tokens long, so B = max(0, H + q_hat - xi) tokens have to be found in the cache. A block
that starts at token B or later is *TEL-safe*: losing it costs no tail excess latency. TEL-safe
blocks are evicted before all others; within both regions the order is LRU, suffix first.

Here H is the length, prompt and output, of a request when it finishes, and a block keeps the
largest H of any request that held it since it was filled: otherwise a short visitor would make
the head of a long conversation evictable.

A request that releases its blocks without having finished (a preemption, a failed KV transfer)
comes back for them, and its H is not known yet. Its blocks are *awaited*: they are protected
whole, at the end of the queue as under stock LRU, until it finishes or they are filled anew.
Blocks that no finished request ever held are protected likewise. The exception is an xi so large
that no request of this model has anything to protect; then the order is LRU's.

A block's region is decided when it is freed, and for all free blocks when the knobs change.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.request import Request

from evictune_policies.engine.knobs import STOCK, Knobs
from evictune_policies.engine.recompute import RecomputeCounter
from evictune_policies.engine.regions import RegionQueue, Tally, TrackedBlock

LRU, TEL_SAFE, PROTECTED = "lru", "tel-safe", "protected"


class TailOptimizedLRU:
    """Decides for one KV cache manager in which order its free blocks are evicted.

    Nothing changes before :meth:`install`. Everything runs on the scheduler's thread.

    Args:
        manager: A manager of one full-attention group, with prefix caching and no block in use.

    Attributes:
        knobs: What is in force.
        recompute: Counts what is computed again because it was evicted.
    """

    def __init__(self, manager: KVCacheManager) -> None:
        self._manager = manager
        self._pool = manager.block_pool
        self._blocks = self._tracked_blocks()
        order = [block.block_id for block in self._pool.free_block_queue.get_all_free_blocks()]
        free = [self._blocks[number] for number in order]
        self._tallies = {name: Tally() for name in (LRU, TEL_SAFE, PROTECTED)}
        self._queue = RegionQueue(free, self._tallies_of(TEL_SAFE, LRU))
        self.recompute = RecomputeCounter(self._pool.hash_block_size)
        self.knobs = STOCK
        # A block is TEL-safe when the tokens up to its end reach longest + slack.
        self._slack = 0
        self._is_lru = True
        self._protects_nothing = False
        self._length = 0  # of the finished request that is being freed; 0: none is
        self._now = 0  # grows with every call to free_blocks
        self._awaits: dict[str, set[int]] = {}  # request id -> blocks it will come back for

    @property
    def evicted(self) -> dict[str, int]:
        """Blocks with a hash that were evicted so far, by region name. From any thread."""
        return {name: tally.blocks for name, tally in self._tallies.items()}

    def _tallies_of(self, *names: str) -> list[Tally]:
        return [self._tallies[name] for name in names]

    def _tracked_blocks(self) -> list[TrackedBlock]:
        """Stand-ins for the pool's blocks, by block id.

        Nobody but the pool knows its blocks yet, apart from the null block, which stays.
        """
        return [
            block if block.is_null else TrackedBlock(block.block_id, self._pool)
            for block in self._pool.blocks
        ]

    def install(self) -> None:
        """Take over from stock. On the instances only: other pools and managers stay stock."""
        manager, pool = self._manager, self._pool
        self._stock_free = manager.free
        self._stock_pop_blocks_for_free = manager.pop_blocks_for_free
        self._stock_reset_prefix_cache = pool.reset_prefix_cache
        manager.free = self.free
        manager.pop_blocks_for_free = self.pop_blocks_for_free
        pool.free_blocks = self.free_blocks
        pool.reset_prefix_cache = self.reset_prefix_cache
        pool.blocks = self._blocks
        pool.free_block_queue = self._queue

    def apply(self, knobs: Knobs) -> None:
        """Put knobs in force and sort the free blocks accordingly. Costs milliseconds.

        Should sorting fail, knobs and order are as before.
        """
        if knobs == self.knobs:
            return
        before = self.knobs
        self._set(knobs)
        try:
            self._sort()
        except Exception:
            self._set(before)
            raise

    def _set(self, knobs: Knobs) -> None:
        self.knobs = knobs
        self._is_lru = True
        if knobs.xi_tokens is not None and knobs.q_hat_tokens is not None:
            self._is_lru = False
            self._slack = knobs.q_hat_tokens - knobs.xi_tokens + self._pool.hash_block_size
            self._protects_nothing = (
                knobs.xi_tokens >= self._manager.max_model_len + knobs.q_hat_tokens
            )

    # Below: called by vLLM in place of its own methods of the same names.

    def free(self, request: Request) -> None:
        """``KVCacheManager.free``, with the length of a finished request in scope."""
        if not request.is_finished():
            self._await(request, self._blocks_of(request))
            self._stock_free(request)
            return
        if self._awaits:
            self._stop_awaiting(request)
        self.recompute.finished(self._blocks_of(request))
        self._length = request.num_tokens
        try:
            self._stock_free(request)
        finally:
            self._length = 0

    def pop_blocks_for_free(self, request: Request) -> list[TrackedBlock]:
        """``KVCacheManager.pop_blocks_for_free``: the blocks are freed later, with no request."""
        blocks: list[TrackedBlock] = self._stock_pop_blocks_for_free(request)
        if request.is_finished():
            self._stop_awaiting(request)
            self.recompute.finished(blocks)
            self._raise_longest(blocks, request.num_tokens)
        else:
            self._await(request, blocks)
        return blocks

    def free_blocks(self, ordered_blocks: Iterable[TrackedBlock]) -> None:
        """``BlockPool.free_blocks``, which see; every statement of stock's has its own here."""
        pool, length = self._pool, self._length
        self._now = now = self._now + 1
        uniform = length > 0 and not self._queue.awaited
        unhashed: list[TrackedBlock] = []
        cached: list[TrackedBlock] = []
        foreign: dict[Any, list[TrackedBlock]] = {}
        for block in ordered_blocks:
            owner = block.pool
            if owner is not pool and owner is not None:
                foreign.setdefault(owner, []).append(block)
                continue
            references = block.ref_cnt - 1
            block.ref_cnt = references
            if block.is_null:
                continue
            content = block._block_hash
            if block.longest < length:
                block.longest = length
            elif block.longest > length:
                if block.content is content:
                    uniform = False
                else:  # filled anew since
                    block.longest = length
            block.content = content
            if references == 0:
                if content is None:
                    unhashed.append(block)
                else:
                    block.freed_at = now
                    cached.append(block)
        if length == 0:  # maybe not the chain of one request: keep the order itself
            for self._now, block in enumerate(cached, now):
                block.freed_at = self._now
        self._queue.prepend_n(unhashed)
        self._join_regions(cached, uniform)
        for owner, blocks in foreign.items():
            owner.free_blocks(blocks)

    def reset_prefix_cache(self) -> bool:
        """``BlockPool.reset_prefix_cache``; afterwards no block is worth more than another."""
        done: bool = self._stock_reset_prefix_cache()
        if done:
            self._awaits.clear()
            self._queue.forget()
            self.recompute.forget()
        return done

    # Which region.

    def _join_regions(self, cached: list[TrackedBlock], uniform: bool) -> None:
        """Append freed blocks to their regions.

        Args:
            cached: Blocks with a hash, in eviction order.
            uniform: All of them carry the length in scope, and none is awaited.
        """
        queue = self._queue
        safe, last = queue.regions
        if self._is_lru or not cached:
            queue.append_to(last, cached)
            return
        split = self._first_protected(cached, self._length + self._slack) if uniform else None
        if split is None:
            queue.append_to(safe, [block for block in cached if self._is_tel_safe(block)])
            queue.append_to(last, [block for block in cached if not self._is_tel_safe(block)])
        else:
            queue.append_to(safe, cached[:split])
            queue.append_to(last, cached[split:])

    def _first_protected(self, cached: list[TrackedBlock], bound: int) -> int | None:
        """Index of the first block that ends before ``bound`` tokens; None: look at each.

        Blocks of one request come suffix first, one block size apart, unless other requests
        still hold some of them.
        """
        size: int = self._pool.hash_block_size
        first: int = cached[0]._block_hash_num_tokens
        last: int = cached[-1]._block_hash_num_tokens
        if first - last != (len(cached) - 1) * size:
            return None
        return min(max(0, (first - bound) // size + 1), len(cached))

    def _is_tel_safe(self, block: TrackedBlock) -> bool:
        """Whether losing a cached free block costs no tail excess latency. Not under plain LRU."""
        if block.longest == 0 or block.block_id in self._queue.awaited:
            return self._protects_nothing
        ends_at: int = block._block_hash_num_tokens
        return ends_at >= block.longest + self._slack

    def _sort(self) -> None:
        """Sort all free blocks into regions anew, each in LRU order."""
        free = self._queue.get_all_free_blocks()
        worthless = [block for block in free if block._block_hash is None]
        cached = [block for block in free if block._block_hash is not None]
        # Freed together: suffix first. No context is as long as 2**32 tokens.
        cached.sort(key=lambda block: (block.freed_at << 32) - block._block_hash_num_tokens)
        if self._is_lru:
            self._queue.relink((worthless, cached), self._tallies_of(TEL_SAFE, LRU))
            return
        safe = [block for block in cached if self._is_tel_safe(block)]
        protected = [block for block in cached if not self._is_tel_safe(block)]
        self._queue.relink((worthless + safe, protected), self._tallies_of(TEL_SAFE, PROTECTED))

    # Lengths and who waits for what.

    def _blocks_of(self, request: Request) -> list[TrackedBlock]:
        (group,) = self._manager.coordinator.single_type_managers
        blocks: list[TrackedBlock] = group.req_to_blocks.get(request.request_id, [])
        return blocks

    @staticmethod
    def _raise_longest(blocks: Iterable[TrackedBlock], length: int) -> None:
        for block in blocks:
            if not block.is_null:
                known = block.longest if block.content is block._block_hash else 0
                block.longest = max(known, length)
                block.content = block._block_hash

    def _await(self, request: Request, blocks: list[TrackedBlock]) -> None:
        """A request lets go of its blocks but will come back for them."""
        numbers = {block.block_id for block in blocks if block._block_hash is not None}
        if not numbers:
            return
        self._awaits.setdefault(request.request_id, set()).update(numbers)
        for number in numbers:
            self._queue.awaited.setdefault(number, set()).add(request.request_id)

    def _stop_awaiting(self, request: Request) -> None:
        """A request that had let go of blocks has finished: now its length is known."""
        awaited = self._queue.awaited
        for number in self._still_awaited_by(request.request_id):
            self._raise_longest([self._blocks[number]], request.num_tokens)
            awaited[number].discard(request.request_id)
            if not awaited[number]:
                del awaited[number]

    def _still_awaited_by(self, request_id: str) -> Iterator[int]:
        """The awaited blocks that were not filled anew meanwhile."""
        for number in self._awaits.pop(request_id, ()):
            if request_id in self._queue.awaited.get(number, ()):
                yield number
