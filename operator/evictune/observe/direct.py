"""The source that scrapes the engines itself: no Prometheus needed.

Increases are taken from its own scrapes, one at every observation, so a reading over a window
needs two of them.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Sequence

from evictune.api.observation import Unknown
from evictune.api.reasons import Reason
from evictune.observe.dialects import Engine
from evictune.observe.draft import Draft
from evictune.observe.engine_page import Counter, EnginePage, read_engine_page, sample_names
from evictune.observe.exposition import ExpositionError, parse, read_page
from evictune.observe.history import Histories, History
from evictune.observe.pages import PageError, PageReader
from evictune.observe.rates import Scrape, increases
from evictune.observe.snapshot import PodKey, RankKey, Snapshot
from evictune.observe.target import EnginePod


class DirectSource:
    """Scrapes every pod it is asked about, with a time limit of `timeout` seconds."""

    def __init__(self, reader: PageReader, clock: Callable[[], float], timeout: float) -> None:
        self._reader = reader
        self._clock = clock
        self._timeout = timeout
        self._histories: Histories[Counter] = Histories()

    async def snapshot(self, pods: Sequence[EnginePod], window: float, max_age: float) -> Snapshot:
        """Scrape the pods now. Never fails as a whole: pods that give no page are pod_faults."""
        del max_age  # A scrape is as cheap as looking whether the last one is still good.
        draft = Draft()
        await asyncio.gather(*(self._add(draft, pod, window) for pod in pods))
        self._histories.forget(self._clock())
        return draft.done()

    async def close(self) -> None:
        """Nothing of its own to close: the reader is shared."""

    async def _add(self, draft: Draft, pod: EnginePod, window: float) -> None:
        history = self._histories.of(pod.key, pod.uid, window)
        async with history.turn:
            await self._scrape(draft, pod, window, history)

    async def _scrape(
        self, draft: Draft, pod: EnginePod, window: float, history: History[Counter]
    ) -> None:
        try:
            text = await self._reader.read(pod.engine_url, self._timeout)
            page = await read_page(text, functools.partial(_parse, engine=pod.engine))
        except (PageError, ExpositionError) as error:
            message = str(error) if isinstance(error, PageError) else f"{pod.engine_url}: {error}"
            draft.pod_faults[pod.key] = Unknown(Reason.SOURCE_UNAVAILABLE, message)
            return
        now = self._clock()
        history.add(Scrape(now, page.counters), window)
        _add_page(draft, pod.key, page)
        scrapes = history.within(now, window)
        if len(scrapes) >= 2 and scrapes[-1].time > scrapes[0].time:
            _add_increases(draft, pod.key, scrapes)
        else:
            draft.pod_faults[pod.key] = _warming_up(pod.engine_url, history, window)


def _parse(text: str, engine: Engine) -> EnginePage:
    return read_engine_page(parse(text, sample_names(engine)), engine)


def _add_page(draft: Draft, pod: PodKey, page: EnginePage) -> None:
    """What a page says of now."""
    for (measure, rank), value in page.gauges.items():
        draft.add_value(measure, RankKey(pod, rank), value)
    for (measure, rank), name in page.names.items():
        draft.add_name(measure, RankKey(pod, rank), name)
    for rank, labels in page.infos.items():
        draft.infos[RankKey(pod, rank)] = labels


def _add_increases(draft: Draft, pod: PodKey, scrapes: Sequence[Scrape[Counter]]) -> None:
    """What two or more scrapes of a page say of the time between the first and the last."""
    seconds = scrapes[-1].time - scrapes[0].time
    for (measure, rank, bound), grown in increases(scrapes).items():
        key = RankKey(pod, rank)
        draft.seconds[key] = seconds
        if bound is None:
            draft.add_value(measure, key, grown)
        else:
            draft.add_bucket(measure, key, bound, grown)


def _warming_up(url: str, history: History[Counter], window: float) -> Unknown:
    if len(history) < 2:
        message = f"{url} was scraped once so far; an increase needs two scrapes"
    else:
        message = (
            f"the window of {window:g} s holds one scrape of {url}: lengthen slo.ttft.window or "
            "shorten behavior.interval"
        )
    return Unknown(Reason.WARMING_UP, message)
