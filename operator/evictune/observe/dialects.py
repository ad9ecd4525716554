"""The one table of metric names: what each engine calls what evictune measures.

A `Meaning` says what a measure is, and how it is read and pooled, whatever the engine calls it. A
`Name` says where an engine of some version keeps it. Where an engine rank exposes several names of
one measure, the first in the table wins; names are never summed. docs/reference/metrics.md
is made from these two tables (`make generate`).

Sources. vLLM: vllm/engine/metrics.py of 0.6 (V0), vllm/v1/metrics/loggers.py of 0.8, 0.10 and 0.32
(the last captured under tests/data/exposition), and the pull requests that changed a name: 4464 and
10853 (times of requests), 14136 (hit-rate gauge), 18354, 24245 and 29330 (gpu_ prefix), 30189 and
33290 (computed tokens). SGLang: docs/references/production_metrics.md (a captured page) and
python/sglang/srt/observability/metrics_collector.py.

Read on purpose from nowhere: vllm:gpu_prefix_cache_hit_rate (0.6 to 0.8) and sglang:cache_hit_rate,
which are of the process's life or of one batch, once in percent; sglang:num_retracted_reqs, a gauge
of the last step; vllm:time_in_queue_requests, which repeats the queue time.
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

    __hash__ = str.__hash__  # Enum's own is slow, and a fleet's series are looked up by it

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
    """kind: how it is read; pooling: how the engines' values become one reading, in words.

    additive: the parts of one rank's measure are summed, else the largest counts.
    """

    kind: Kind
    unit: str
    pooling: str
    additive: bool = True


@dataclass(frozen=True)
class Name:
    """Where an engine keeps a measure.

    base: the metric's name as the engine's page has it. since, until: the first and the last
    release that have it; empty: every release that evictune knows. labels: only samples with these
    labels count ("": or without the label). lazy: it is not there before the first request.
    """

    measure: Measure
    engine: Engine
    base: str
    since: str = ""
    until: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    lazy: bool = False

    @property
    def sample(self) -> str:
        """The name of the samples on the page: a histogram's buckets carry a suffix."""
        return f"{self.base}_bucket" if MEANINGS[self.measure].kind is Kind.BUCKETS else self.base

    @property
    def spellings(self) -> tuple[str, ...]:
        """The sample's name, and what pipelines between engine and store make of it.

        OpenTelemetry and some gateways write _ for the colon, and add or drop the suffix _total.
        """
        bare = self.sample.removesuffix("_total") if _is_total(self) else self.sample
        stems = dict.fromkeys((self.sample, bare))
        return tuple(dict.fromkeys(each for s in stems for each in (s, s.replace(":", "_"))))

    @property
    def versions(self) -> str:
        """The releases that have it, in words."""
        if self.since and self.until:
            return f"{self.since} to {self.until}"
        if self.until:
            return f"up to {self.until}"
        return f"{self.since} and later" if self.since else "all"


def _is_total(name: Name) -> bool:
    return MEANINGS[name.measure].kind is Kind.COUNTER and name.base.endswith("_total")


_HOTTEST = "the hottest engine rank's"
_SUM = "summed over parts, pods and engine ranks"

MEANINGS: Mapping[Measure, Meaning] = {
    Measure.TTFT: Meaning(Kind.BUCKETS, "seconds", f"buckets {_SUM}, then the quantile's bucket"),
    Measure.KV_USAGE: Meaning(Kind.GAUGE, "0..1", _HOTTEST, additive=False),
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
# Where SGLang schedules by priority, it shows every priority's share beside the whole.
_WHOLE = {"priority": ""}

NAMES: tuple[Name, ...] = (
    Name(Measure.TTFT, _V, "vllm:time_to_first_token_seconds"),
    Name(Measure.KV_USAGE, _V, "vllm:kv_cache_usage_perc", "0.10"),
    Name(Measure.KV_USAGE, _V, "vllm:gpu_cache_usage_perc", until="0.11"),
    Name(Measure.RUNNING, _V, "vllm:num_requests_running"),
    Name(Measure.WAITING, _V, "vllm:num_requests_waiting"),
    Name(Measure.PREEMPTIONS, _V, "vllm:num_preemptions_total"),
    Name(Measure.CACHE_QUERIES, _V, "vllm:prefix_cache_queries_total", "0.10"),
    # In blocks before 0.9: only the ratio of the two is used.
    Name(Measure.CACHE_QUERIES, _V, "vllm:gpu_prefix_cache_queries_total", "0.8", "0.11"),
    Name(Measure.CACHE_HITS, _V, "vllm:prefix_cache_hits_total", "0.10"),
    Name(Measure.CACHE_HITS, _V, "vllm:gpu_prefix_cache_hits_total", "0.8", "0.11"),
    Name(Measure.QUEUE_SECONDS, _V, "vllm:request_queue_time_seconds_sum", "0.6.4"),
    Name(Measure.QUEUED_REQUESTS, _V, "vllm:request_queue_time_seconds_count", "0.6.4"),
    # 0.6.4 has it too, but with the decode time in it.
    Name(Measure.PREFILL_SECONDS, _V, "vllm:request_prefill_time_seconds_sum", "0.6.5"),
    Name(Measure.PREFILL_TOKENS, _V, "vllm:request_prefill_kv_computed_tokens_sum", "0.13"),
    Name(
        Measure.COMPUTED_TOKENS,
        _V,
        "vllm:prompt_tokens_by_source_total",
        "0.16",
        labels={"source": "local_compute"},
    ),
    Name(Measure.COMPUTED_TOKENS, _V, "vllm:request_prefill_kv_computed_tokens_sum", "0.13"),
    Name(Measure.PROMPT_TOKENS, _V, "vllm:request_prompt_tokens_sum"),
    Name(Measure.PROMPTS, _V, "vllm:request_prompt_tokens_count"),
    Name(Measure.CACHE_CONFIG, _V, "vllm:cache_config_info"),
    Name(Measure.TTFT, _S, "sglang:time_to_first_token_seconds", lazy=True),
    Name(Measure.KV_USAGE, _S, "sglang:token_usage"),
    Name(Measure.RUNNING, _S, "sglang:num_running_reqs", labels=_WHOLE),
    Name(Measure.WAITING, _S, "sglang:num_queue_reqs", labels=_WHOLE),
    # A request is retracted where vLLM preempts it.
    Name(Measure.PREEMPTIONS, _S, "sglang:num_retracted_requests_total", "0.5"),
    Name(Measure.CACHE_QUERIES, _S, "sglang:prompt_tokens_total", lazy=True),
    Name(Measure.CACHE_HITS, _S, "sglang:cached_tokens_total", "0.4.2"),
    Name(Measure.QUEUE_SECONDS, _S, "sglang:queue_time_seconds_sum", "0.5"),
    Name(Measure.QUEUED_REQUESTS, _S, "sglang:queue_time_seconds_count", "0.5"),
    Name(
        Measure.COMPUTED_TOKENS,
        _S,
        "sglang:realtime_tokens_total",
        "0.5",
        labels={"mode": "prefill_compute"},
    ),
)

# Labels by which an engine divides a measure of a rank: its parts are summed. (Served adapters have
# model names of their own.) Series that differ in any other label repeat each other.
PART_LABELS: tuple[str, ...] = ("model_name", "is_streaming", "cache_source")
# The label that tells the ranks of one pod apart; an engine without it is rank "0".
RANK_LABELS: tuple[str, ...] = ("engine", "dp_rank")
INFO_LABELS: tuple[str, ...] = (
    "block_size",
    "num_gpu_blocks",
    "kv_cache_size_tokens",
    "gpu_memory_utilization",
)
DEFAULT_PORTS: Mapping[Engine, int] = {Engine.VLLM: 8000, Engine.SGLANG: 30000}

PLUGIN_PORT = 9410
PLUGIN_POLICY = "evictune_policy_info"
PLUGIN_ELIGIBLE = "evictune_engine_eligible"
PLUGIN_EVICTED = "evictune_evicted_blocks_total"
PLUGIN_RECOMPUTED = "evictune_recomputed_tokens_total"
PLUGIN_REFUSED = "evictune_refused_document_info"
PLUGIN_MEMORY_ELIGIBLE = "evictune_memory_eligible"
PLUGIN_MEMORY_FRACTION = "evictune_memory_fraction"
PLUGIN_MEMORY_ATTEMPT = "evictune_memory_attempt"

PLUGIN_SERIES: Mapping[str, str] = {
    PLUGIN_POLICY: "the values in force and their revision, of each engine rank",
    PLUGIN_ELIGIBLE: "whether T-LRU can be used by the engine rank, and why not",
    PLUGIN_EVICTED: "cached blocks evicted within the window, by region: lru, tel-safe, protected",
    PLUGIN_RECOMPUTED: "tokens computed again within the window, because they were evicted",
    PLUGIN_REFUSED: "why the knob document now on disk was refused",
    PLUGIN_MEMORY_ELIGIBLE: "whether the pod can take its memory fraction from the document, and "
    "why not",
    PLUGIN_MEMORY_FRACTION: "the memory fraction of the command line (source manifest)",
    PLUGIN_MEMORY_ATTEMPT: "what became of the document's memory fraction in the pod",
}


def names_of(measure: Measure, engine: Engine | None = None) -> tuple[Name, ...]:
    """The names of a measure, the preferred one first; of one engine, or of all with None."""
    return tuple(
        name for name in NAMES if name.measure is measure and engine in (None, name.engine)
    )


def part_of(labels: Mapping[str, str]) -> tuple[str, ...]:
    """Which part of a rank's measure the series is."""
    return tuple(labels.get(label, "") for label in PART_LABELS)


def rank_of(labels: Mapping[str, str]) -> str:
    """The engine rank within its pod."""
    for label in RANK_LABELS:
        if rank := labels.get(label):
            return rank
    return "0"
