"""An inference engine in numbers: what its scheduler does in a step, and how long that takes."""

from __future__ import annotations

from dataclasses import dataclass, field

from evictune_policies.algorithms.catalog import Cost


@dataclass(frozen=True)
class EngineModel:
    """One vLLM engine with a single full-attention group.

    A step takes step_seconds, whatever is in it, and for each request in it
    cost.linear * n + cost.quadratic * n * (n + 2 * context) / 2 for n new tokens after `context`
    tokens: a prompt in one step costs what `Cost` says, and so does one in chunks apart from the
    fixed part of each step. A decoding request is one new token.

    max_num_batched_tokens, max_num_seqs, scheduler_reserve_full_isl, watermark, max_model_len:
    vLLM's options of these names, with the defaults of its SchedulerConfig; max_model_len None: as
    long as the pool allows. Chunked prefill is on, the queue is first come, first served.

    Raises:
        ValueError: For what vLLM refuses as well, and negative times.
    """

    max_num_batched_tokens: int = 2048
    max_num_seqs: int = 128
    scheduler_reserve_full_isl: bool = True
    watermark: float = 0.0
    max_model_len: int | None = None
    step_seconds: float = 0.01
    cost: Cost = field(default_factory=lambda: Cost(linear=1e-4))

    def __post_init__(self) -> None:
        if self.max_num_seqs < 1:
            raise ValueError(f"max_num_seqs {self.max_num_seqs}: at least 1 is needed")
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ValueError(
                f"max_num_batched_tokens {self.max_num_batched_tokens}: at least max_num_seqs "
                f"({self.max_num_seqs}) is needed, one token for each"
            )
        if not 0 <= self.watermark < 1:
            raise ValueError(f"watermark {self.watermark}: a share of the pool in [0, 1) is needed")
        times = self.step_seconds, self.cost.linear, self.cost.quadratic
        if min(times) < 0 or max(times) == 0:
            raise ValueError(
                f"step_seconds {times[0]:g}, cost {times[1]:g} a token and {times[2]:g} a pair of "
                "tokens: none may be negative, and a step has to take some time"
            )
