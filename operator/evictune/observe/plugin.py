"""What the plugin itself says of every engine rank: always read from the engines' pods.

Acknowledging a change must not depend on a metrics source that may be late or away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import lru_cache

from evictune.api.knobs import KnobValues
from evictune.api.observation import MemoryAttempt, Reading, Unknown, Value
from evictune.api.reasons import Reason
from evictune.observe.dialects import (
    PLUGIN_ELIGIBLE,
    PLUGIN_EVICTED,
    PLUGIN_MEMORY_ATTEMPT,
    PLUGIN_MEMORY_ELIGIBLE,
    PLUGIN_MEMORY_FRACTION,
    PLUGIN_POLICY,
    PLUGIN_RECOMPUTED,
    PLUGIN_REFUSED,
    PLUGIN_SERIES,
    rank_of,
)
from evictune.observe.exposition import ExpositionError, Sample, parse, read_page
from evictune.observe.history import Histories, History
from evictune.observe.pages import PageError, PageReader
from evictune.observe.rates import Scrape, increases
from evictune.observe.snapshot import PodKey, RankKey
from evictune.observe.target import EnginePod

READ_SECONDS = 2.0
REGIONS = ("lru", "tel-safe", "protected")

RECOMPUTED = "recomputed"

# An engine rank and what is counted: blocks evicted from a region, or RECOMPUTED tokens.
_Counter = tuple[str, str]


@dataclass(frozen=True)
class PluginRank:
    """One rank's own word; None where it does not say."""

    in_force: KnobValues | None = None
    revision: int | None = None
    eligible: bool | None = None
    ineligible_reason: str = ""
    refused_document: str = ""


@dataclass(frozen=True)
class PluginPage:
    """The plugin's page of one pod."""

    ranks: Mapping[str, PluginRank]
    counts: Mapping[_Counter, float]
    memory: MemoryAttempt | None = None


@dataclass(frozen=True)
class PluginView:
    """The plugin on all pods.

    Within the window: evicted, blocks by region; recomputed, tokens. memory: of the pods that show
    what became of their memory fraction.
    """

    ranks: Mapping[RankKey, PluginRank]
    evicted: Mapping[str, Reading]
    recomputed: Reading
    memory: Mapping[PodKey, MemoryAttempt] = field(default_factory=dict)


@dataclass
class _Gathered:
    """What the pods gave so far: each pod's increases by what is counted, or why there are none."""

    ranks: dict[RankKey, PluginRank] = field(default_factory=dict)
    counts: dict[PodKey, Mapping[str, float]] = field(default_factory=dict)
    faults: dict[PodKey, Unknown] = field(default_factory=dict)
    memory: dict[PodKey, MemoryAttempt] = field(default_factory=dict)


_OF_MEMORY = (PLUGIN_MEMORY_ELIGIBLE, PLUGIN_MEMORY_FRACTION, PLUGIN_MEMORY_ATTEMPT)


def read_plugin_page(samples: Iterable[Sample]) -> PluginPage:
    """The page's ranks and counters. Raises ValueError for numbers that are none."""
    ranks: dict[str, PluginRank] = {}
    counts: dict[_Counter, float] = {}
    memory: MemoryAttempt | None = None
    for sample in samples:
        rank = rank_of(sample.labels)
        if sample.name in _OF_MEMORY:
            memory = _attempt(memory or MemoryAttempt("", None, "none"), sample)
        elif sample.name == PLUGIN_EVICTED:
            counts[_counter(rank, sample.labels["region"])] = sample.value
        elif sample.name == PLUGIN_RECOMPUTED:
            counts[_counter(rank, RECOMPUTED)] = sample.value
        else:
            ranks[rank] = _said(ranks.get(rank, PluginRank()), sample)
    return PluginPage(ranks, counts, memory)


def _attempt(known: MemoryAttempt, sample: Sample) -> MemoryAttempt:
    """What is known of the pod's memory fraction, with one sample more."""
    labels = sample.labels
    if sample.name == PLUGIN_MEMORY_ELIGIBLE:
        why = f"{labels.get('reason', '')}: {labels.get('message', '')}"
        return known if sample.value == 1 else replace(known, ineligible=why)
    if sample.name == PLUGIN_MEMORY_FRACTION:
        manifest = labels.get("source") == "manifest"
        return replace(known, manifest=Decimal(str(sample.value))) if manifest else known
    fraction = Decimal(labels["fraction"]) if labels.get("fraction") else None
    revision = int(labels.get("revision") or 0)
    return replace(known, state=labels["state"], fraction=fraction, revision=revision)


@lru_cache(maxsize=1024)
def _counter(rank: str, counted: str) -> _Counter:
    """One object for all pages: a window's scrapes of a fleet are kept."""
    return rank, counted


def _parse(text: str) -> PluginPage:
    return read_plugin_page(parse(text, PLUGIN_SERIES))


def _said(rank: PluginRank, sample: Sample) -> PluginRank:
    labels = sample.labels
    match sample.name:
        case name if name == PLUGIN_POLICY:
            return replace(rank, in_force=_values(labels), revision=int(labels["revision"]))
        case name if name == PLUGIN_ELIGIBLE:
            reason = labels.get("reason", "")
            return replace(rank, eligible=sample.value == 1, ineligible_reason=reason)
        case name if name == PLUGIN_REFUSED:
            text = f"{labels.get('reason', '')}: {labels.get('message', '')}"
            return replace(rank, refused_document=text)
    return rank


def _values(labels: Mapping[str, str]) -> KnobValues:
    if labels["policy"] == "lru":
        return KnobValues(xi_tokens=None)
    q_hat = labels.get("q_hat_tokens")
    return KnobValues(int(labels["xi_tokens"]), int(q_hat) if q_hat else None)


class PluginReader:
    """Reads the plugin's page of every pod, and keeps what a window's increases need."""

    def __init__(
        self, reader: PageReader, clock: Callable[[], float], timeout: float = READ_SECONDS
    ) -> None:
        self._reader = reader
        self._clock = clock
        self._timeout = timeout
        self._histories: Histories[_Counter] = Histories()

    async def view(self, pods: Sequence[EnginePod], window: float) -> PluginView:
        """The plugin on these pods now. Never fails: a pod without a page has no ranks in it."""
        gathered = _Gathered()
        await asyncio.gather(*(self._add(gathered, pod, window) for pod in pods))
        self._histories.forget(self._clock())
        keys = [pod.key for pod in pods]
        return PluginView(
            gathered.ranks,
            {region: _evicted(gathered, keys, region) for region in REGIONS},
            _recomputed(gathered, keys),
            gathered.memory,
        )

    async def _add(self, gathered: _Gathered, pod: EnginePod, window: float) -> None:
        history = self._histories.of(pod.key, pod.uid, window)
        async with history.turn:
            await self._read(gathered, pod, window, history)

    async def _read(
        self, gathered: _Gathered, pod: EnginePod, window: float, history: History[_Counter]
    ) -> None:
        try:
            text = await self._reader.read(pod.plugin_url, self._timeout)
            page = await read_page(text, _parse)
        except (PageError, ExpositionError) as error:
            gathered.faults[pod.key] = Unknown(Reason.NO_SERIES, str(error))
            return
        except (ArithmeticError, ValueError, KeyError) as error:
            message = f"{pod.plugin_url}: a label of the plugin's series cannot be read: {error}"
            gathered.faults[pod.key] = Unknown(Reason.NO_SERIES, message)
            return
        for rank, said in page.ranks.items():
            gathered.ranks[RankKey(pod.key, rank)] = said
        if page.memory is not None:
            gathered.memory[pod.key] = page.memory
        self._count(gathered, pod, page, window, history)

    def _count(
        self,
        gathered: _Gathered,
        pod: EnginePod,
        page: PluginPage,
        window: float,
        history: History[_Counter],
    ) -> None:
        if not page.counts and not any(rank.eligible for rank in page.ranks.values()):
            message = f"{pod.plugin_url} counts no evictions: no eligible engine rank is there"
            gathered.faults[pod.key] = Unknown(Reason.NO_SERIES, message)
            return
        now = self._clock()
        history.add(Scrape(now, page.counts), window)
        scrapes = history.within(now, window)
        if len(scrapes) < 2:
            message = f"{pod.plugin_url} was not yet read twice within {window:g} s"
            gathered.faults[pod.key] = Unknown(Reason.WARMING_UP, message)
            return
        grown = dict.fromkeys(REGIONS, 0.0)
        # Every rank is a process of its own, and restarts on its own.
        for (_, counted), more in increases(scrapes, process=lambda key: key[0]).items():
            grown[counted] = grown.get(counted, 0.0) + more
        gathered.counts[pod.key] = grown


def _evicted(gathered: _Gathered, pods: Sequence[PodKey], region: str) -> Reading:
    """Blocks evicted from a region, summed over all pods; Unknown if one pod does not say."""
    faults = _faults(gathered, pods, PLUGIN_EVICTED)
    return faults or Value(sum(gathered.counts[pod][region] for pod in pods))


def _recomputed(gathered: _Gathered, pods: Sequence[PodKey]) -> Reading:
    """Tokens computed again, likewise. Older plugins do not count them."""
    faults = _faults(gathered, pods, PLUGIN_RECOMPUTED)
    if faults:
        return faults
    if not all(RECOMPUTED in gathered.counts[pod] for pod in pods):
        message = f"{PLUGIN_RECOMPUTED} is not there: an older plugin"
        return Unknown(Reason.NOT_MEASURABLE, message)
    return Value(sum(gathered.counts[pod][RECOMPUTED] for pod in pods))


def _faults(gathered: _Gathered, pods: Sequence[PodKey], series: str) -> Unknown | None:
    """Why not all pods say."""
    faults = [gathered.faults[pod] for pod in pods if pod in gathered.faults]
    if not faults:
        return None
    reason = faults[0].reason if len(faults) == len(pods) else Reason.INCOMPLETE_COVERAGE
    share = f"{len(pods) - len(faults)} of {len(pods)} ready pods"
    return Unknown(reason, f"{series} of {share}: {faults[0].message}")
