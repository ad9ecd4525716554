"""Prometheus as a source: one sampler for each window asks for all policies at once.

A round is one query for each measure, over all namespaces that policies asked about lately. Rounds
run in threads of the source's own, one at a time for each sampler: a source that hangs keeps a few
threads waiting and delays nobody else.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from evictune.api.observation import Unknown
from evictune.api.reasons import Reason
from evictune.api.sources import PodLabels, SourceDefinition
from evictune.observe.dialects import INFO_LABELS, MEANINGS, Kind, Measure, rank_of
from evictune.observe.draft import Draft
from evictune.observe.prometheus import AccessError, AnswerError, PrometheusClient, Series
from evictune.observe.promql import EXPORTED, SERIES_LABEL, query, stray_query
from evictune.observe.snapshot import Snapshot, SourceError
from evictune.observe.target import EnginePod

_THREADS = 4
# Namespaces and windows that no policy asked about for so long are no longer sampled.
_FORGET_SECONDS = 3600.0

log = logging.getLogger(__name__)


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
            sampler = Sampler(self._client, self._definition, window, self._threads, self._clock)
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
        definition: SourceDefinition,
        window: float,
        threads: ThreadPoolExecutor,
        clock: Callable[[], float],
    ) -> None:
        self._client = client
        self._window = window
        self._timeout = definition.timeout
        self._labels = definition.labels
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
        try:
            for measure in Measure:
                text = query(measure, namespaces, self._window, self._labels)
                try:
                    found = self._client.vector(text, self._rest(deadline))
                    _add(draft, measure, found, self._window, self._labels)
                except AnswerError as error:
                    draft.faults[measure] = Unknown(Reason.SOURCE_UNAVAILABLE, str(error))
            self._note_stray(draft, namespaces, deadline)
        except AccessError as error:
            return SourceError(Unknown(Reason.SOURCE_UNAVAILABLE, str(error)))
        _note_warming_up(draft, self._window)
        snapshot = draft.done()
        # Put in order here, in the source's thread: every policy looks its own pods up.
        by_pod = snapshot.ranks
        log.debug("%s has series of %d pods", self._client.place, len(by_pod))
        return snapshot

    def _rest(self, deadline: float) -> float:
        """Seconds left of the round. Raises AccessError when there are none."""
        rest = deadline - time.monotonic()
        if rest <= 0:
            raise AccessError(f"{self._client.place} gave no answer within {self._timeout:g} s")
        return rest

    def _note_stray(self, draft: Draft, namespaces: frozenset[str], deadline: float) -> None:
        """One query more where a namespace has no series at all: what is there instead?"""
        seen = {rank.pod.namespace for of in draft.values.values() for rank in of}
        if draft.faults or namespaces <= seen:
            return
        text = stray_query(namespaces, self._labels)
        try:
            found = self._client.vector(text, self._rest(deadline))
            draft.stray = _stray(found, self._labels)
        except AnswerError as error:
            # The readings do not depend on it.
            log.debug("looking for series without a pod: %s", error)


def _stray(found: Iterable[Series], labels: PodLabels) -> str:
    """In words, how engines' series are labelled that belong to no pod; empty if there are none.

    Without the labels' values: a policy's author may not be meant to see whose they are.
    """
    aside, renamed = EXPORTED + labels.namespace, False
    for series in found:
        names = series.get("metric", {})
        missing = [each for each in (labels.namespace, labels.pod) if each not in names]
        if missing:
            kept = ", ".join(sorted(set(names) - {"__name__"}))
            return (
                f"it has engines' series without the label {' and '.join(missing)}; they have "
                f"{kept}: name the right ones in the source's labels, or in the scrape job"
            )
        renamed |= aside in names
    if renamed:
        return (
            f"it has series whose namespace is in {aside}: set honor_labels in the scrape job, or "
            f"name the {EXPORTED} labels in the source's labels"
        )
    return ""


def _add(
    draft: Draft, measure: Measure, found: Iterable[Series], window: float, names: PodLabels
) -> None:
    """All elements of a vector: a fleet's buckets are a hundred thousand, so little is done for
    each. Raises AnswerError if one cannot be read."""
    kind = MEANINGS[measure].kind
    has_bounds, has_labels = kind is Kind.BUCKETS, kind is Kind.INFO
    for series in found:
        try:
            labels = series["metric"]
            value = float(series["value"][1])
            bound = float(labels["le"]) if "le" in labels else None
            namespace, pod = labels.get(names.namespace), labels.get(names.pod)
        except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
            raise AnswerError(
                f"an element of the answer for {measure} cannot be read: {error!r}"
            ) from None
        if not namespace or not pod:
            continue  # Belongs to no pod: a store that holds other things too may have such series.
        key = draft.rank(namespace, pod, rank_of(labels))
        draft.add_name(measure, key, labels.get(SERIES_LABEL, ""))
        draft.seconds[key] = window
        if has_bounds and bound is not None:
            draft.add_bucket(measure, key, bound, value)
        elif has_labels:
            draft.infos[key] = {name: labels[name] for name in INFO_LABELS if name in labels}
        else:
            draft.add_value(measure, key, value)


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
