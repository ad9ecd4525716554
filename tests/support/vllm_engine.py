"""vLLM's own scheduler and KV cache manager, driven step by step without a model."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from evictune_policies.replay.simulation.engine_model import EngineModel
from vllm.config import VllmConfig
from vllm.engine.arg_utils import EngineArgs
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

from demo.constants import ModelSize
from demo.model import cached_model
from tests.support.timed_workloads import BLOCK, Turn
from tests.support.vllm_parts import cache_config, make_request


@cache
def _config(model: EngineModel) -> VllmConfig:
    """vLLM's configuration for the same engine."""
    config = EngineArgs(
        model=str(cached_model(ModelSize(layers=1, hidden=64, intermediate=64, heads=1))),
        dtype="float32",
        max_model_len=model.max_model_len,
        max_num_seqs=model.max_num_seqs,
        max_num_batched_tokens=model.max_num_batched_tokens,
        enable_prefix_caching=True,
        async_scheduling=False,
    ).create_engine_config()
    config.scheduler_config.scheduler_reserve_full_isl = model.scheduler_reserve_full_isl
    config.scheduler_config.watermark = model.watermark
    return config


class VllmEngine:
    """One real scheduler and the requests in it, which go by their index in `turns`.

    Attributes:
        cached: Per request: tokens found in the cache, as vLLM reports them with the first token.
        finished: So far.
    """

    def __init__(
        self,
        turns: list[Turn],
        capacity_blocks: int,
        model: EngineModel,
        prepare: Callable[[KVCacheManager], None],
    ) -> None:
        config = _config(model)
        config.cache_config.num_gpu_blocks = capacity_blocks + 1
        self._turns = turns
        self._scheduler = Scheduler(
            config,
            cache_config(capacity_blocks + 1, BLOCK),
            StructuredOutputManager(config),
            block_size=BLOCK,
            hash_block_size=BLOCK,
        )
        self._manager = self._scheduler.kv_cache_manager
        prepare(self._manager)
        self._index: dict[str, int] = {}
        self._requests: dict[int, Request] = {}
        self._scheduled: SchedulerOutput | None = None
        self.cached: dict[int, int] = {}
        self.finished: set[int] = set()

    def add(self, index: int) -> None:
        """A request arrives."""
        turn = self._turns[index]
        request = make_request(turn.prompt, BLOCK, max_tokens=len(turn.output))
        self._index[request.request_id] = index
        self._requests[index] = request
        self._scheduler.add_request(request)

    def schedule(self) -> list[tuple[int, int, int]]:
        """Schedule a step: (request, tokens to compute, tokens before them), in vLLM's order."""
        self._scheduled = self._scheduler.schedule()
        steps = []
        for name, tokens in self._scheduled.num_scheduled_tokens.items():
            request = self._scheduler.requests[name]
            steps.append((self._index[name], tokens, request.num_computed_tokens - tokens))
        return steps

    def update(self) -> None:
        """The model answers the step that was scheduled."""
        assert self._scheduled is not None
        names = list(self._scheduled.num_scheduled_tokens)
        answer = ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: place for place, name in enumerate(names)},
            sampled_token_ids=[self._next_token(name) for name in names],
        )
        outputs = self._scheduler.update_from_output(self._scheduled, answer)
        for output in (output for client in outputs.values() for output in client.outputs):
            index = self._index[output.request_id]
            if output.prefill_stats is not None:
                self.cached[index] = output.prefill_stats.num_cached_tokens
            if output.finish_reason is not None:
                self.finished.add(index)

    def _next_token(self, name: str) -> list[int]:
        request = self._scheduler.requests[name]
        if request.num_computed_tokens < request.num_tokens:
            return []
        return [self._turns[self._index[name]].output[request.num_output_tokens]]

    @property
    def busy(self) -> bool:
        """Whether any request waits or runs."""
        return bool(self._scheduler.has_unfinished_requests())

    @property
    def running(self) -> list[int]:
        """Those who hold blocks, in order of admission."""
        return [self._index[request.request_id] for request in self._scheduler.running]

    @property
    def waiting(self) -> list[int]:
        """The queue."""
        return [self._index[request.request_id] for request in self._scheduler.waiting]

    def blocks_of(self, index: int) -> list[int]:
        """Which blocks a running request holds, by vLLM's numbers less the null block."""
        (blocks,) = self._manager.get_block_ids(self._requests[index].request_id)
        return [block - 1 for block in blocks]

    def preemptions_of(self, index: int) -> int:
        """How often a request was preempted."""
        return int(self._requests[index].num_preemptions)

    @property
    def cached_blocks(self) -> list[bool]:
        """Per block, whether it has content."""
        return [block.block_hash is not None for block in self._manager.block_pool.blocks[1:]]
