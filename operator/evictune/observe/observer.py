"""One look at a policy's target: the API server, the metrics source and the plugin, together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Protocol

from evictune.api.observation import (
    EngineObservation,
    Observation,
    PodObservation,
    Reading,
    TargetState,
    Unknown,
)
from evictune.api.policy import EvictionPolicy
from evictune.api.reasons import Reason
from evictune.api.sources import SourceDefinition, SourceKind
from evictune.observe.dialects import Measure
from evictune.observe.direct import DirectSource
from evictune.observe.pages import PageReader
from evictune.observe.plugin import PluginRank, PluginReader, PluginView
from evictune.observe.pool import Pooling
from evictune.observe.samplers import PrometheusSource
from evictune.observe.snapshot import RankKey, Snapshot, SourceError
from evictune.observe.target import AwayPod, ClusterReader, EnginePod, Target

# A snapshot that several policies share is at most this share of the asking one's interval old: the
# fewest rounds of queries with which no policy sees one twice.
_SHARED_AGE = 0.9


@dataclass(frozen=True)
class _Look:
    """What was read, from which source; fallback: in words, why from this one."""

    snapshot: Snapshot
    source: str
    fallback: str = ""


class Source(Protocol):
    """A metrics source."""

    async def snapshot(self, pods: Sequence[EnginePod], window: float, max_age: float) -> Snapshot:
        """What it says of these pods over `window` seconds, at most `max_age` seconds old.

        Returns within the source's time limit. Raises SourceError if it says nothing at all.
        """
        ...

    async def close(self) -> None:
        """Give back what it holds."""
        ...


class Observer:
    """Observes targets for all policies. Belongs to one event loop; `close` at its end.

    clock: seconds of a clock that is never set back: only times between looks are of interest.
    """

    def __init__(
        self,
        cluster: ClusterReader,
        sources: Mapping[str, SourceDefinition],
        clock: Callable[[], float],
    ) -> None:
        self._cluster = cluster
        self._pages = PageReader()
        self._plugin = PluginReader(self._pages, clock)
        self._sources = {
            name: _source(definition, self._pages, clock) for name, definition in sources.items()
        }
        self._fallbacks = {name: definition.fallback for name, definition in sources.items()}

    async def observe(self, policy: EvictionPolicy) -> Observation:
        """The target now. Faults of the outside world become Unknown readings, never errors."""
        target = await self._cluster.target(policy)
        if target.state.problem is not None:
            nothing = _unobserved(target.state, target.state.problem)
            return replace(nothing, pods=tuple(_away(pod) for pod in target.away))
        window = policy.spec.slo.ttft.window
        seen, plugin = await asyncio.gather(
            self._look(policy, target), self._plugin.view(target.pods, window)
        )
        return _observation(policy, target, seen, plugin)

    async def close(self) -> None:
        """Close connections and end the sources' threads."""
        for source in self._sources.values():
            await source.close()
        await self._pages.close()

    async def _look(self, policy: EvictionPolicy, target: Target) -> _Look:
        """The policy's source, or the one that the administrator named in its place."""
        name = policy.spec.source
        if name not in self._sources:
            defined = ", ".join(sorted(self._sources))
            message = f"spec.metrics.source: {name!r} is not defined; there are: {defined}"
            return _Look(_no_snapshot(Unknown(Reason.SOURCE_UNDEFINED, message)), name)
        try:
            return _Look(await self._snapshot(name, policy, target), name)
        except SourceError as error:
            fallback = self._fallbacks[name]
            if fallback is None:
                return _Look(_no_snapshot(error.unknown), name)
            why = f"source {fallback!r} is read in place of {name!r}: {error.unknown.message}"
        try:
            return _Look(await self._snapshot(fallback, policy, target), fallback, why)
        except SourceError as error:
            return _Look(_no_snapshot(error.unknown), fallback, why)

    async def _snapshot(self, name: str, policy: EvictionPolicy, target: Target) -> Snapshot:
        return await self._sources[name].snapshot(
            target.pods,
            policy.spec.slo.ttft.window,
            policy.spec.behavior.interval * _SHARED_AGE,
        )


def _source(definition: SourceDefinition, pages: PageReader, clock: Callable[[], float]) -> Source:
    if definition.kind is SourceKind.DIRECT:
        return DirectSource(pages, clock, definition.timeout)
    return PrometheusSource(definition, clock)


def _no_snapshot(fault: Unknown) -> Snapshot:
    return Snapshot(values={}, buckets={}, seconds={}, faults=dict.fromkeys(Measure, fault))


def _unobserved(state: TargetState, reason: Reason) -> Observation:
    """Nothing can be read of a target that is missing or has no ready engine."""
    unknown = Unknown(reason, state.message)
    return Observation(
        target=state,
        engines=(),
        ttft=unknown,
        queue_time=unknown,
        kv_usage=unknown,
        preemptions=unknown,
        hit_ratio=unknown,
        running=unknown,
        waiting=unknown,
        prefill_rate=unknown,
        uncached_tokens=unknown,
        prompt_tokens_per_request=unknown,
        evicted_protected=unknown,
        evicted_tel_safe=unknown,
        evicted_lru=unknown,
    )


def _observation(
    policy: EvictionPolicy, target: Target, seen: _Look, plugin: PluginView
) -> Observation:
    pods = [pod.key for pod in target.pods]
    pooling = Pooling(seen.snapshot, pods, target.pods[0].engine, seen.source)
    return Observation(
        target=target.state,
        engines=_engines(target.pods, pooling, plugin),
        ttft=pooling.ttft(policy.spec.slo.ttft),
        queue_time=pooling.quotient(Measure.QUEUE_SECONDS, Measure.QUEUED_REQUESTS),
        kv_usage=pooling.kv_usage(),
        preemptions=pooling.preemptions(),
        hit_ratio=pooling.hit_ratio(),
        running=pooling.total(Measure.RUNNING),
        waiting=pooling.total(Measure.WAITING),
        prefill_rate=pooling.prefill_rate(),
        uncached_tokens=pooling.per_second(Measure.COMPUTED_TOKENS),
        prompt_tokens_per_request=pooling.quotient(Measure.PROMPT_TOKENS, Measure.PROMPTS),
        evicted_protected=plugin.evicted["protected"],
        evicted_tel_safe=plugin.evicted["tel-safe"],
        evicted_lru=plugin.evicted["lru"],
        recomputed_tokens=plugin.recomputed,
        metric_names=pooling.metric_names(),
        fallback=seen.fallback,
        pods=_pods(policy, target, pooling, plugin),
    )


def _pods(
    policy: EvictionPolicy, target: Target, pooling: Pooling, plugin: PluginView
) -> tuple[PodObservation, ...]:
    """Every pod by itself, where engines may be restarted one by one."""
    if not policy.restarts_engines:
        return ()
    ready = (_pod(policy, pod, pooling, plugin) for pod in target.pods)
    return (*ready, *(_away(pod) for pod in target.away))


def _pod(
    policy: EvictionPolicy, pod: EnginePod, pooling: Pooling, plugin: PluginView
) -> PodObservation:
    alone = replace(pooling, pods=[pod.key])
    return PodObservation(
        name=pod.key.pod,
        uid=pod.uid,
        ready=True,
        restarts=pod.restarts,
        memory=plugin.memory.get(pod.key),
        ttft=alone.ttft(policy.spec.slo.ttft),
        hit_ratio=alone.hit_ratio(),
        preemptions=alone.preemptions(),
    )


def _away(pod: AwayPod) -> PodObservation:
    unknown = Unknown(Reason.NO_READY_ENGINES, f"pod {pod.name} is not ready")
    return PodObservation(pod.name, pod.uid, False, pod.restarts, None, unknown, unknown, unknown)


def _engines(
    pods: Sequence[EnginePod], pooling: Pooling, plugin: PluginView
) -> tuple[EngineObservation, ...]:
    """Every engine rank that the plugin or the source knows; one for a pod that neither does."""
    engines = []
    for pod in pods:
        ranks = {rank for rank in plugin.ranks if rank.pod == pod.key} | set(pooling.ranks(pod.key))
        for rank in sorted(ranks) or [RankKey(pod.key, "0")]:
            engines.append(_engine(rank, pooling, plugin.ranks.get(rank, PluginRank())))
    return tuple(engines)


def _engine(rank: RankKey, pooling: Pooling, said: PluginRank) -> EngineObservation:
    config = pooling.snapshot.infos.get(rank, {})
    block_tokens, blocks = _whole(config.get("block_size")), _whole(config.get("num_gpu_blocks"))
    product = block_tokens * blocks if block_tokens and blocks else None
    return EngineObservation(
        pod=rank.pod.pod,
        engine=rank.rank,
        in_force=said.in_force,
        revision=said.revision,
        eligible=said.eligible,
        ineligible_reason=said.ineligible_reason,
        block_tokens=block_tokens,
        # Releases before the label kv_cache_size_tokens leave it to be computed.
        capacity_tokens=_whole(config.get("kv_cache_size_tokens")) or product,
        kv_usage=_rank_usage(rank, pooling),
        refused_document=said.refused_document,
        fraction=_fraction(config.get("gpu_memory_utilization")),
        blocks=blocks,
    )


def _rank_usage(rank: RankKey, pooling: Pooling) -> Reading:
    usage = pooling.snapshot.values.get(Measure.KV_USAGE, {}).get(rank)
    if usage is None:
        return Unknown(Reason.NO_SERIES, f"no KV usage of pod {rank.pod.pod} engine {rank.rank}")
    return pooling.rank_usage(rank, usage)


def _fraction(text: str | None) -> Decimal | None:
    """A memory fraction; None for what is none."""
    try:
        fraction = Decimal(text or "")
        return fraction if 0 < fraction <= 1 else None
    except ArithmeticError:  # no number, or NaN
        return None


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None
