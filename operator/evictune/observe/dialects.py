"""The one table of metric names: what each engine calls what evictune measures.

A `Meaning` says what a measure is, and how it is read and pooled, whatever the engine calls it. A
`Name` says where an engine of some version keeps it. Where an engine rank exposes several names of
one measure, the first in the table wins; names are never summed. docs/metrics.md is generated from
these two tables (`python -m evictune.observe.metrics_page`).

Sources: vllm/v1/metrics/loggers.py of 0.32 (captured under tests/data/exposition); the older names
from vllm-project/vllm pull requests 14136, 18354 and 29330, the newer ones from 30189 and 33290;
SGLang's production metrics page.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum


class Engine(StrEnum):
    """An engine whose metric names are known."""

    VLLM = "vllm"
    SGLANG = "sglang"


class Kind(Enum):
    """How a source reads a series."""

    GAUGE = "value now"
    COUNTER = "increase over the window"
    BUCKETS = "increase of every bucket over the window"
    INFO = "labels of a series that is always 1"


class Measure(StrEnum):
    """What evictune measures, whatever the engine calls it."""

    TTFT = "ttft"
    KV_USAGE = "kv_usage"
    RUNNING = "running"
    WAITING = "waiting"
    PREEMPTIONS = "preemptions"
    CACHE_QUERIES = "cache_queries"
    CACHE_HITS = "cache_hits"
    QUEUE_SECONDS = "queue_seconds"
    QUEUED_REQUESTS = "queued_requests"
    PREFILL_SECONDS = "prefill_seconds"
    PREFILL_TOKENS = "prefill_tokens"
    COMPUTED_TOKENS = "computed_tokens"
    PROMPT_TOKENS = "prompt_tokens"
    PROMPTS = "prompts"
    CACHE_CONFIG = "cache_config"


@dataclass(frozen=True)
class Meaning:
    """kind: how it is read; pooling: how the engines' values become one reading, in words."""

    kind: Kind
    unit: str
    pooling: str


@dataclass(frozen=True)
class Name:
    """Where an engine keeps a measure.

    base: the metric's name as the engine declares it. labels: only samples with these labels
    count. versions: the engine's releases that have it, in words.
    """

    measure: Measure
    engine: Engine
    base: str
    versions: str
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def sample(self) -> str:
        """The name of the samples on the page: a histogram's buckets carry a suffix."""
        return f"{self.base}_bucket" if MEANINGS[self.measure].kind is Kind.BUCKETS else self.base


_HOTTEST = "the hottest engine rank's"
_SUM = "summed over pods and engine ranks"

MEANINGS: Mapping[Measure, Meaning] = {
    Measure.TTFT: Meaning(Kind.BUCKETS, "seconds", f"buckets {_SUM}, then the quantile's bucket"),
    Measure.KV_USAGE: Meaning(Kind.GAUGE, "0..1", _HOTTEST),
    Measure.RUNNING: Meaning(Kind.GAUGE, "requests", _SUM),
    Measure.WAITING: Meaning(Kind.GAUGE, "requests", _SUM),
    Measure.PREEMPTIONS: Meaning(Kind.COUNTER, "preemptions", f"{_HOTTEST} rate per second"),
    Measure.CACHE_QUERIES: Meaning(Kind.COUNTER, "tokens", _SUM),
    Measure.CACHE_HITS: Meaning(Kind.COUNTER, "tokens", f"{_SUM}, then hits / queries"),
    Measure.QUEUE_SECONDS: Meaning(Kind.COUNTER, "seconds", f"{_SUM}, then seconds / requests"),
    Measure.QUEUED_REQUESTS: Meaning(Kind.COUNTER, "requests", _SUM),
    Measure.PREFILL_SECONDS: Meaning(Kind.COUNTER, "seconds", _SUM),
    Measure.PREFILL_TOKENS: Meaning(Kind.COUNTER, "tokens", f"{_SUM}, then tokens / seconds"),
    Measure.COMPUTED_TOKENS: Meaning(Kind.COUNTER, "tokens", f"{_SUM}, per second"),
    Measure.PROMPT_TOKENS: Meaning(Kind.COUNTER, "tokens", f"{_SUM}, then tokens / prompts"),
    Measure.PROMPTS: Meaning(Kind.COUNTER, "requests", _SUM),
    Measure.CACHE_CONFIG: Meaning(Kind.INFO, "blocks, tokens", "shown for each rank"),
}

_V, _S = Engine.VLLM, Engine.SGLANG

NAMES: tuple[Name, ...] = (
    Name(Measure.TTFT, _V, "vllm:time_to_first_token_seconds", "all"),
    Name(Measure.KV_USAGE, _V, "vllm:kv_cache_usage_perc", "0.10 and later"),
    Name(Measure.KV_USAGE, _V, "vllm:gpu_cache_usage_perc", "before 0.12"),
    Name(Measure.RUNNING, _V, "vllm:num_requests_running", "all"),
    Name(Measure.WAITING, _V, "vllm:num_requests_waiting", "all"),
    Name(Measure.PREEMPTIONS, _V, "vllm:num_preemptions_total", "all"),
    Name(Measure.CACHE_QUERIES, _V, "vllm:prefix_cache_queries_total", "0.10 and later"),
    Name(Measure.CACHE_QUERIES, _V, "vllm:gpu_prefix_cache_queries_total", "0.8 to 0.11"),
    Name(Measure.CACHE_HITS, _V, "vllm:prefix_cache_hits_total", "0.10 and later"),
    Name(Measure.CACHE_HITS, _V, "vllm:gpu_prefix_cache_hits_total", "0.8 to 0.11"),
    Name(Measure.QUEUE_SECONDS, _V, "vllm:request_queue_time_seconds_sum", "all"),
    Name(Measure.QUEUED_REQUESTS, _V, "vllm:request_queue_time_seconds_count", "all"),
    Name(Measure.PREFILL_SECONDS, _V, "vllm:request_prefill_time_seconds_sum", "all"),
    Name(
        Measure.PREFILL_TOKENS,
        _V,
        "vllm:request_prefill_kv_computed_tokens_sum",
        "0.13 and later",
    ),
    Name(
        Measure.COMPUTED_TOKENS,
        _V,
        "vllm:prompt_tokens_by_source_total",
        "0.16 and later",
        {"source": "local_compute"},
    ),
    Name(
        Measure.COMPUTED_TOKENS,
        _V,
        "vllm:request_prefill_kv_computed_tokens_sum",
        "0.13 and later",
    ),
    Name(Measure.PROMPT_TOKENS, _V, "vllm:request_prompt_tokens_sum", "all"),
    Name(Measure.PROMPTS, _V, "vllm:request_prompt_tokens_count", "all"),
    Name(Measure.CACHE_CONFIG, _V, "vllm:cache_config_info", "all"),
    Name(Measure.TTFT, _S, "sglang:time_to_first_token_seconds", "all"),
    Name(Measure.KV_USAGE, _S, "sglang:token_usage", "all"),
    Name(Measure.RUNNING, _S, "sglang:num_running_reqs", "all"),
    Name(Measure.WAITING, _S, "sglang:num_queue_reqs", "all"),
)

# The label that tells the ranks of one pod apart; an engine without it is rank "0".
RANK_LABELS: tuple[str, ...] = ("engine", "dp_rank")
INFO_LABELS: tuple[str, ...] = ("block_size", "num_gpu_blocks", "kv_cache_size_tokens")
DEFAULT_PORTS: Mapping[Engine, int] = {Engine.VLLM: 8000, Engine.SGLANG: 30000}

PLUGIN_PORT = 9410
PLUGIN_POLICY = "evictune_policy_info"
PLUGIN_ELIGIBLE = "evictune_engine_eligible"
PLUGIN_EVICTED = "evictune_evicted_blocks_total"
PLUGIN_RECOMPUTED = "evictune_recomputed_tokens_total"
PLUGIN_REFUSED = "evictune_refused_document_info"

PLUGIN_SERIES: Mapping[str, str] = {
    PLUGIN_POLICY: "the values in force and their revision, of each engine rank",
    PLUGIN_ELIGIBLE: "whether T-LRU can be used by the engine rank, and why not",
    PLUGIN_EVICTED: "cached blocks evicted within the window, by region: lru, tel-safe, protected",
    PLUGIN_RECOMPUTED: "tokens computed again within the window, because they were evicted",
    PLUGIN_REFUSED: "why the knob document now on disk was refused",
}


def names_of(measure: Measure, engine: Engine | None = None) -> tuple[Name, ...]:
    """The names of a measure, the preferred one first; of one engine, or of all with None."""
    return tuple(
        name for name in NAMES if name.measure is measure and engine in (None, name.engine)
    )


def rank_of(labels: Mapping[str, str]) -> str:
    """The engine rank within its pod."""
    return next((labels[label] for label in RANK_LABELS if labels.get(label)), "0")
