"""What is computed again because it was evicted, on vLLM's own classes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from evictune_policies.engine.recompute import RecomputeCounter
from evictune_policies.engine.tlru import TailOptimizedLRU
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.request import Request, RequestStatus

from tests.support.vllm_parts import cache_manager, make_request

BLOCK = 16
POOL = 40


class Server:
    """One request at a time on a pool of POOL blocks; counts its misses of known blocks itself."""

    def __init__(self) -> None:
        self.manager: KVCacheManager = cache_manager(POOL, BLOCK)
        self.policy = TailOptimizedLRU(self.manager)
        self.policy.install()
        self.seen: set[bytes] = set()
        self.again = 0  # tokens of full blocks, exactly

    @property
    def counted(self) -> int:
        return self.policy.recompute.tokens

    def admit(self, prompt: Sequence[int]) -> Request:
        request = make_request(prompt, BLOCK)
        hits, hit_tokens, _ = self.manager.get_computed_blocks(request)
        new_tokens = request.num_tokens - hit_tokens
        assert self.manager.allocate_slots(request, new_tokens, hit_tokens, hits) is not None
        request.num_computed_tokens = request.num_tokens
        request.status = RequestStatus.RUNNING
        missed = request.block_hashes[hit_tokens // BLOCK :]
        self.again += BLOCK * sum(name in self.seen for name in missed)
        return request

    def finish(self, request: Request) -> None:
        request.status = RequestStatus.FINISHED_STOPPED
        self.manager.free(request)
        self.seen.update(request.block_hashes)

    def serve(self, prompt: Sequence[int]) -> None:
        self.finish(self.admit(prompt))


def prompt(start: int, blocks: int, more: int = 3) -> list[int]:
    """Blocks of tokens that no other start has, and a few tokens that fill none."""
    return list(range(start * 10_000, start * 10_000 + blocks * BLOCK + more))


def test_prompts_that_never_come_again_are_not_computed_again() -> None:
    server = Server()
    for number in range(50):
        server.serve(prompt(number, 7))
    assert sum(server.policy.evicted.values()) > 0
    assert server.counted == server.again == 0


def test_what_is_still_cached_is_not_computed_again() -> None:
    server = Server()
    for blocks in (10, 14, 18):
        server.serve(prompt(1, blocks))
    assert server.counted == server.again == 0


@pytest.mark.parametrize("blocks", [1, 2, 3, 8, 9, 15, 16, 31])
def test_a_conversation_that_was_evicted_is(blocks: int) -> None:
    server = Server()
    server.serve(prompt(1, blocks))
    for number in range(2, 9):
        server.serve(prompt(number, 20))
    assert server.again == 0
    server.serve(prompt(1, blocks + 1))
    assert server.again == blocks * BLOCK
    assert server.again - max(BLOCK, server.again // 5) <= server.counted <= server.again


def test_a_tail_that_was_evicted_counts_as_far_as_the_last_landmark() -> None:
    server = Server()
    server.serve(prompt(1, 32))
    server.serve(prompt(2, 20))
    server.serve(prompt(1, 33))
    assert 0 < server.again < 30 * BLOCK
    assert server.again - 6 * BLOCK <= server.counted <= server.again


def test_a_repeat_that_recomputes_its_last_block_counts_that_block_alone() -> None:
    """vLLM has to compute a token of every prompt: a whole-block repeat loses its last block."""
    server = Server()
    for _ in range(2):
        server.serve(prompt(1, 16, more=0))
    assert server.counted == server.again == BLOCK


def test_preemption_is_not_eviction() -> None:
    server = Server()
    request = server.admit(prompt(1, 12))
    request.status = RequestStatus.PREEMPTED
    server.manager.free(request)
    request.num_computed_tokens = 0
    hits, hit_tokens, _ = server.manager.get_computed_blocks(request)
    server.manager.allocate_slots(request, request.num_tokens - hit_tokens, hit_tokens, hits)
    server.finish(request)
    assert server.counted == 0


def test_a_reset_is_no_eviction_either() -> None:
    server = Server()
    server.serve(prompt(1, 16))
    assert server.manager.reset_prefix_cache()
    server.serve(prompt(1, 16))
    assert server.counted == 0


def test_the_oldest_landmarks_are_forgotten() -> None:
    server = Server()
    server.policy.recompute = counter = RecomputeCounter(BLOCK, remembered=22)
    for number in range(3):  # 11 landmarks each: those of the first are forgotten
        server.serve(prompt(number, 32))
    server.serve(prompt(0, 32))
    assert server.again > 0
    assert counter.tokens == 0
    server.serve(prompt(2, 32))
    assert counter.tokens > 0
