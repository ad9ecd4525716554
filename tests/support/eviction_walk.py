"""Long random walks over vLLM's own cache manager: the operations a scheduler does to it.

The walk is a function of its seed: two managers that hand out the same blocks see the same walk.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import KVCacheBlock
from vllm.v1.request import Request, RequestStatus

from tests.support.reference_eviction import ReferencePool
from tests.support.vllm_parts import cache_manager, make_request

BLOCK_SIZE = 4
BLOCKS = 60
MAX_LENGTH = 120
Knobs = tuple[int | None, int]


@dataclass
class Watched:
    """A manager, and what is told of everything done to it.

    Attributes:
        manager: vLLM's own, the plugin in it or not.
        reference: Follows by definition; None when only the trace is wanted.
        change: Puts (xi, q_hat) in force in the manager.
    """

    manager: KVCacheManager
    reference: ReferencePool | None = None
    change: Callable[[int | None, int], None] = lambda xi, q_hat: None


def small_manager() -> KVCacheManager:
    """Small enough that blocks are evicted all the time."""
    return cache_manager(BLOCKS, BLOCK_SIZE, MAX_LENGTH)


def reference_of(manager: KVCacheManager) -> ReferencePool:
    """A reference pool in the state of a manager that was never used."""
    return ReferencePool(free_order(manager), BLOCK_SIZE, MAX_LENGTH)


def free_order(manager: KVCacheManager) -> list[int]:
    """Block ids in eviction order, as vLLM's own reader lists them."""
    return [block.block_id for block in manager.block_pool.free_block_queue.get_all_free_blocks()]


class Walk:
    """Random operations on one watched manager.

    Args:
        watched: The manager and its followers.
        seed: Makes the walk.
        knobs: Knobs to change between; empty for none.

    Attributes:
        trace: The order of the free blocks after each operation.
        done: How often each operation took effect.
    """

    def __init__(self, watched: Watched, seed: int, knobs: tuple[Knobs, ...] = ()) -> None:
        self.watched = watched
        self.manager = watched.manager
        self.pool = watched.manager.block_pool
        self.random = random.Random(seed)
        self.knobs = knobs
        self.running: list[Request] = []
        self.preempted: list[Request] = []
        self.deferred: list[list[KVCacheBlock]] = []
        self.pinned: list[list[KVCacheBlock]] = []
        self.conversations: list[list[int]] = [[7] * 12, [8] * 12]
        self.trace: list[list[int]] = []
        self.done: dict[str, int] = {}

    def run(self, steps: int) -> None:
        """Do that many operations, checking the order of the free blocks after each."""
        operations: list[tuple[Callable[[], bool], int]] = [
            (self.start, 30), (self.decode, 40), (self.finish, 22), (self.preempt, 4),
            (self.resume, 8), (self.abort_preempted, 1), (self.finish_deferred, 4),
            (self.preempt_deferred, 1), (self.release_deferred, 6), (self.pin, 3),
            (self.unpin, 3), (self.lose_content, 1), (self.reset, 1), (self.change, 3),
        ]  # fmt: skip
        functions, weights = zip(*operations, strict=True)
        for _ in range(steps):
            (operation,) = self.random.choices(functions, weights)
            if operation():
                self.done[operation.__name__] = self.done.get(operation.__name__, 0) + 1
            self.check(operation.__name__)

    def check(self, operation: str) -> None:
        """Compare with the reference, and hold the pool to stock's invariants."""
        order = free_order(self.manager)
        self.trace.append(order)
        pool, queue = self.pool, self.pool.free_block_queue
        unused = [b.block_id for b in pool.blocks if b.ref_cnt == 0 and not b.is_null]
        assert sorted(order) == unused, f"after {operation}: free is not what nobody holds"
        assert queue.num_free_blocks == len(order), f"after {operation}: count is not the list's"
        assert [b.block_id for b in queue.iter_blocks_after(None)] == order
        if order:
            middle = len(order) // 2
            behind = queue.iter_blocks_after(pool.blocks[order[middle]])
            assert [b.block_id for b in behind] == order[middle + 1 :]
        reference = self.watched.reference
        if reference is not None:
            assert order == reference.order(), f"after {operation}: order is not the definition's"

    # Operations. Each returns whether it had something to work on.

    def start(self) -> bool:
        """A new turn of a conversation, a new conversation, or a short visitor of its prefix."""
        history = self.random.choice(self.conversations)
        if self.random.random() < 0.3:
            history = history[: self.random.randrange(1, len(history) + 1)]
        growth = [self.random.randrange(100) for _ in range(self.random.randrange(1, 30))]
        prompt = (history + growth)[: MAX_LENGTH - 20]
        return self._admit(make_request(prompt, BLOCK_SIZE))

    def decode(self) -> bool:
        """One more token for a running request."""
        if not self.running:
            return False
        request = self.random.choice(self.running)
        if request.num_tokens >= MAX_LENGTH:
            return False
        request.append_output_token_ids(self.random.randrange(100))
        before = len(self._blocks(request))
        new_tokens = request.num_tokens - request.num_computed_tokens
        if self.manager.allocate_slots(request, new_tokens) is None:
            request.num_computed_tokens = request.num_tokens - new_tokens
            return False
        self._expect_taken(self._blocks(request)[before:])
        request.num_computed_tokens = request.num_tokens
        return True

    def finish(self) -> bool:
        """A request ends; its conversation may go on later."""
        request = self._end()
        if request is None:
            return False
        blocks = self._blocks(request)
        self._expect_let_go(request, blocks, finished=True)
        ends = self._ends(reversed(blocks))
        self.manager.free(request)
        self._expect_released(ends)
        return True

    def preempt(self) -> bool:
        """A running request loses its blocks and waits to come back."""
        if not self.running:
            return False
        request = self.running.pop(self.random.randrange(len(self.running)))
        blocks = self._blocks(request)
        self._expect_let_go(request, blocks, finished=False)
        ends = self._ends(reversed(blocks))
        self.manager.free(request)
        self._expect_released(ends)
        self._wait(request)
        return True

    def resume(self) -> bool:
        """A preempted request comes back."""
        if not self.preempted:
            return False
        request = self.preempted[0]
        if self._admit(request):
            self.preempted.pop(0)
            return True
        return False

    def abort_preempted(self) -> bool:
        """A request is aborted while it waits and holds nothing."""
        if not self.preempted:
            return False
        request = self.preempted.pop()
        request.status = RequestStatus.FINISHED_ABORTED
        self._expect_let_go(request, [], finished=True)
        self.manager.free(request)
        return True

    def finish_deferred(self) -> bool:
        """A request ends but a KV connector still writes to its blocks."""
        request = self._end()
        if request is None:
            return False
        self._expect_let_go(request, self._blocks(request), finished=True)
        self.deferred.append(self.manager.pop_blocks_for_free(request))
        return True

    def preempt_deferred(self) -> bool:
        """As :meth:`preempt`, with the blocks freed later."""
        if not self.running:
            return False
        request = self.running.pop(self.random.randrange(len(self.running)))
        self._expect_let_go(request, self._blocks(request), finished=False)
        self.deferred.append(self.manager.pop_blocks_for_free(request))
        self._wait(request)
        return True

    def release_deferred(self) -> bool:
        """Deferred blocks are freed, with no request in scope."""
        if not self.deferred:
            return False
        blocks = self.deferred.pop(0)
        ends = self._ends(reversed(blocks))
        self.pool.free_blocks(reversed(blocks))
        self._expect_released(ends)
        return True

    def pin(self) -> bool:
        """A connector holds some cached blocks while it copies them."""
        cached = [block for block in self.pool.blocks if block.block_hash is not None]
        if not cached:
            return False
        blocks = self.random.sample(cached, min(len(cached), 5))
        self.pool.touch(blocks)
        self.pinned.append(blocks)
        if self.watched.reference is not None:
            self.watched.reference.touch(block.block_id for block in blocks)
        return True

    def unpin(self) -> bool:
        """The copy is done."""
        if not self.pinned:
            return False
        blocks = self.pinned.pop()
        ends = self._ends(blocks)
        self.pool.free_blocks(blocks)
        self._expect_released(ends)
        return True

    def lose_content(self) -> bool:
        """A connector reports blocks as invalid."""
        numbers = set(self.random.sample(range(1, BLOCKS + 1), 2))
        held = {block.block_id for request in self.running for block in self._blocks(request)}
        numbers -= held
        self.pool.evict_blocks(numbers)
        if self.watched.reference is not None:
            self.watched.reference.lose_content(numbers)
        return bool(numbers)

    def reset(self) -> bool:
        """``reset_prefix_cache``, which stock refuses while blocks are in use."""
        if self.random.random() < 0.5:
            while self.running:
                self.finish()
            while self.deferred:
                self.release_deferred()
            while self.pinned:
                self.unpin()
        done = self.manager.reset_prefix_cache()
        if done and self.watched.reference is not None:
            self.watched.reference.reset()
        return bool(done)

    def change(self) -> bool:
        """Other knobs."""
        if not self.knobs:
            return False
        xi, q_hat = self.random.choice(self.knobs)
        self.watched.change(xi, q_hat)
        if self.watched.reference is not None:
            self.watched.reference.change(xi, q_hat)
        return True

    # What they share.

    def _admit(self, request: Request) -> bool:
        computed, hit_tokens, _ = self.manager.get_computed_blocks(request)
        hits = list(computed.blocks[0])
        new_tokens = request.num_tokens - hit_tokens
        if self.manager.allocate_slots(request, new_tokens, hit_tokens, computed) is None:
            return False
        if self.watched.reference is not None:
            self.watched.reference.touch(block.block_id for block in hits)
        self._expect_taken(self._blocks(request)[len(hits) :])
        request.num_computed_tokens = request.num_tokens
        request.status = RequestStatus.RUNNING
        self.running.append(request)
        return True

    def _end(self) -> Request | None:
        if not self.running:
            return None
        request = self.running.pop(self.random.randrange(len(self.running)))
        request.status = RequestStatus.FINISHED_STOPPED
        self.conversations.append(list(request.all_token_ids))
        self.conversations = self.conversations[:2] + self.conversations[2:][-6:]
        return request

    def _wait(self, request: Request) -> None:
        request.status = RequestStatus.PREEMPTED
        request.num_computed_tokens = 0
        request.num_preemptions += 1
        self.preempted.append(request)

    def _blocks(self, request: Request) -> list[KVCacheBlock]:
        (group,) = self.manager.coordinator.single_type_managers
        return list(group.req_to_blocks[request.request_id])

    @staticmethod
    def _ends(blocks: Iterable[KVCacheBlock]) -> list[tuple[int, int | None]]:
        return [(block.block_id, block.block_hash_num_tokens) for block in blocks]

    def _expect_taken(self, blocks: list[KVCacheBlock]) -> None:
        if self.watched.reference is not None:
            taken = self.watched.reference.take(len(blocks))
            assert [block.block_id for block in blocks] == taken, "not the definition's blocks"
            for block in blocks:
                self.watched.reference.blocks[block.block_id].end = block.block_hash_num_tokens

    def _expect_let_go(
        self, request: Request, blocks: list[KVCacheBlock], *, finished: bool
    ) -> None:
        reference = self.watched.reference
        if reference is not None:
            for block in blocks:
                reference.blocks[block.block_id].end = block.block_hash_num_tokens
            numbers = [block.block_id for block in blocks]
            length = request.num_tokens if finished else None
            reference.let_go(numbers, request.request_id, length)

    def _expect_released(self, ends: list[tuple[int, int | None]]) -> None:
        if self.watched.reference is not None:
            self.watched.reference.release(ends)
