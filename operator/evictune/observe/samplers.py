"""Prometheus as a source: one sampler for each window asks for all policies at once.

A round is one query for each measure, over all namespaces that policies asked about lately. Rounds
run in threads of the source's own, one at a time for each sampler: a source that hangs keeps a few
threads waiting and delays nobody else.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from evictune.api.observation import Unknown
from evictune.api.reasons import Reason
from evictune.api.sources import SourceDefinition
from evictune.observe.dialects import INFO_LABELS, MEANINGS, Kind, Measure, rank_of
from evictune.observe.draft import Draft
from evictune.observe.prometheus import AccessError, AnswerError, PrometheusClient, Series
from evictune.observe.promql import SERIES_LABEL, query
from evictune.observe.snapshot import PodKey, RankKey, Snapshot, SourceError
from evictune.observe.target import EnginePod

_THREADS = 4
# Namespaces and windows that no policy asked about for so long are no longer sampled.
_FORGET_SECONDS = 3600.0


@dataclass(frozen=True)
class _Round:
    """One round of queries: when it began, what it covered and what came of it."""

    began: float
    namespaces: frozenset[str]
    outcome: Snapshot | SourceError


class PrometheusSource:
    """All samplers of one source. Belongs to one event loop."""

    def __init__(self, definition: SourceDefinition, clock: Callable[[], float]) -> None:
        self._definition = definition
        self._clock = clock
        self._client = PrometheusClient(definition)
        self._threads = ThreadPoolExecutor(_THREADS, f"source-{definition.name}")
        self._samplers: dict[float, Sampler] = {}

    async def snapshot(self, pods: Sequence[EnginePod], window: float, max_age: float) -> Snapshot:
        """What the source says of the pods' namespace. Raises SourceError."""
        sampler = self._samplers.get(window)
        if sampler is None:
            self._forget()
            sampler = Sampler(
                self._client, window, self._definition.timeout, self._threads, self._clock
            )
            self._samplers[window] = sampler
        return await sampler.snapshot(pods[0].key.namespace, max_age)

    async def close(self) -> None:
        """End the threads as their queries end."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._client.close()

    def _forget(self) -> None:
        oldest = self._clock() - _FORGET_SECONDS
        self._samplers = {w: s for w, s in self._samplers.items() if s.last_asked >= oldest}


class Sampler:
    """Rounds of queries over one window."""

    def __init__(
        self,
        client: PrometheusClient,
        window: float,
        timeout: float,
        threads: ThreadPoolExecutor,
        clock: Callable[[], float],
    ) -> None:
        self._client = client
        self._window = window
        self._timeout = timeout
        self._threads = threads
        self._clock = clock
        self._asked: dict[str, float] = {}
        self._latest: _Round | None = None
        self._running: asyncio.Future[None] | None = None

    @property
    def last_asked(self) -> float:
        """When a policy last asked, in seconds of the clock."""
        return max(self._asked.values(), default=0.0)

    async def snapshot(self, namespace: str, max_age: float) -> Snapshot:
        """The latest round if it is new enough, else the next one. Raises SourceError."""
        called = self._clock()
        self._asked[namespace] = called
        try:
            async with asyncio.timeout(self._timeout):
                latest = await self._at_least(namespace, called - max_age)
        except TimeoutError:
            message = f"{self._client.place} gave no answer within {self._timeout:g} s"
            raise SourceError(Unknown(Reason.SOURCE_UNAVAILABLE, message)) from None
        if isinstance(latest.outcome, SourceError):
            raise SourceError(latest.outcome.unknown)
        return latest.outcome

    async def _at_least(self, namespace: str, oldest: float) -> _Round:
        """A round that covers the namespace and began no earlier than `oldest`."""
        while True:
            latest = self._latest
            if latest and latest.began >= oldest and namespace in latest.namespaces:
                return latest
            if self._running is None:
                self._running = asyncio.ensure_future(self._round())
            # Whoever gives up waiting leaves the round to the others.
            await asyncio.shield(self._running)

    async def _round(self) -> None:
        began = self._clock()
        oldest = began - _FORGET_SECONDS
        self._asked = {name: asked for name, asked in self._asked.items() if asked >= oldest}
        namespaces = frozenset(self._asked)
        loop = asyncio.get_running_loop()
        try:
            outcome = await loop.run_in_executor(self._threads, self._ask, namespaces)
            self._latest = _Round(began, namespaces, outcome)
        finally:
            self._running = None

    def _ask(self, namespaces: frozenset[str]) -> Snapshot | SourceError:
        """All queries of a round, in a thread. Stops at the first that the source refuses."""
        deadline = time.monotonic() + self._timeout
        draft = Draft()
        for measure in Measure:
            remaining = max(0.05, deadline - time.monotonic())
            try:
                text = query(measure, namespaces, self._window)
                for series in self._client.vector(text, remaining):
                    _add(draft, measure, series, self._window)
            except AccessError as error:
                return SourceError(Unknown(Reason.SOURCE_UNAVAILABLE, str(error)))
            except AnswerError as error:
                draft.faults[measure] = Unknown(Reason.SOURCE_UNAVAILABLE, str(error))
        _note_warming_up(draft, self._window)
        return draft.done()


def _add(draft: Draft, measure: Measure, series: Series, window: float) -> None:
    """One element of a vector. Raises AnswerError if it is not one."""
    try:
        labels = series["metric"]
        value = float(series["value"][1])
        bound = float(labels["le"]) if "le" in labels else None
        pod = PodKey(labels.get("namespace", ""), labels.get("pod", ""))
    except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
        raise AnswerError(
            f"an element of the answer for {measure} cannot be read: {error!r}"
        ) from None
    if not pod.namespace or not pod.pod:
        return  # Belongs to no pod: a store that holds other things too may have such series.
    key = RankKey(pod, rank_of(labels))
    draft.add_name(measure, key, labels.get(SERIES_LABEL, ""))
    match MEANINGS[measure].kind:
        case Kind.INFO:
            draft.infos[key] = {name: labels[name] for name in INFO_LABELS if name in labels}
        case Kind.BUCKETS if bound is not None:
            draft.add_bucket(measure, key, bound, value)
        case _:
            draft.add_value(measure, key, value)
    draft.seconds[key] = window


def _note_warming_up(draft: Draft, window: float) -> None:
    """A pod that has gauges but no increase was scraped less than twice within the window."""
    grown = {
        rank.pod
        for measure, of in draft.values.items()
        if MEANINGS[measure].kind is Kind.COUNTER
        for rank in of
    }
    for pod in {rank.pod for rank in draft.values.get(Measure.RUNNING, ())} - grown:
        draft.pod_faults[pod] = Unknown(
            Reason.WARMING_UP,
            f"fewer than two samples of pod {pod.pod} within {window:g} s: wait, or lengthen "
            "slo.ttft.window to several scrape intervals",
        )
