"""What Kopf delivers, handed to the scheduler.

Only low-level event handlers: they add no finalizer, no annotation and no patch, so that deleting
a policy, its namespace or the operator in any order leaves nothing stuck. A periodic list is the
backstop for a watch that went silent.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor as Pool
from typing import Any

import kopf

from evictune.api.policy import GROUP, PLURAL, VERSION
from evictune.index import Entry, Key, PolicyIndex, entry_of, is_leaving
from evictune.kube import ApiError, KubeApi, policies_path
from evictune.loop import Clock, Scheduler, spread_of
from evictune.operator_metrics import OperatorMetrics

RELIST_INTERVAL = 60.0
FIRST_LIST_RETRY = 5.0
# Whole seconds: the API server parses this one as an integer.
WATCH_SERVER_TIMEOUT = 240
WATCH_CLIENT_TIMEOUT = 270.0
REQUEST_TIMEOUT = 30.0
NOT_FOUND = 404
_FIRST_BACKOFFS = (1.0, 2.0, 5.0)
_LAST_BACKOFF = 10.0

log = logging.getLogger(__name__)


class EndlessBackoffs:
    """Seconds between Kopf's attempts: an API server that stays away must not end the operator.

    Its exit would lose the windows of direct scrapes, and help nobody.
    """

    def __iter__(self) -> Iterator[float]:
        yield from _FIRST_BACKOFFS
        yield from itertools.repeat(_LAST_BACKOFF)


class Follower:
    """Keeps index and scheduler in step with the policies that exist."""

    def __init__(
        self,
        api: KubeApi,
        index: PolicyIndex,
        scheduler: Scheduler,
        metrics: OperatorMetrics,
        pool: Pool,
        namespaces: Iterable[str],
        clock: Clock,
        close: Callable[[], Awaitable[None]],
    ) -> None:
        self._api = api
        self._index = index
        self._scheduler = scheduler
        self._metrics = metrics
        self._pool = pool
        self._namespaces: tuple[str | None, ...] = tuple(namespaces) or (None,)
        self._clock = clock
        self._close = close
        # Told when policies can be listed after their definition was missing.
        self.found: Callable[[], None] = lambda: None
        self._listed = asyncio.Event()
        self._wanted = asyncio.Event()
        self._problem: tuple[int, str] | None = None
        self._listing: asyncio.Task[None] | None = None

    def start(self, leading: Awaitable[object]) -> None:
        """Once `leading` is over, list: rivals are known before the first tick. Keep listing."""
        self._listing = asyncio.create_task(self._follow(leading), name="list policies")

    async def _follow(self, leading: Awaitable[object]) -> None:
        await leading
        await self._try_list()
        await self._keep_listing()

    async def stop(self) -> None:
        """Stop listing and all policies' loops, then close what they used."""
        if self._listing is not None:
            self._listing.cancel()
        await self._scheduler.stop()
        await self._close()

    def check(self) -> None:
        """Raise what ended the periodic list, which nothing should."""
        if self._listing is not None and self._listing.done():
            self._listing.result()

    async def on_event(self, body: Mapping[str, Any], deleted: bool) -> None:
        """One event of the watch."""
        self._metrics.last_event.set(self._clock.wall())
        if not self._listed.is_set():
            return  # The list that is still to come holds this one.
        if deleted or is_leaving(body):
            self._forget(entry_of(body))
        else:
            self._put(entry_of(body))

    def relist(self) -> None:
        """List soon: the watch ended, and may have missed something."""
        self._wanted.set()

    async def _keep_listing(self) -> None:
        while True:
            troubled = self._problem is not None or not self._listed.is_set()
            await self._wait(FIRST_LIST_RETRY if troubled else RELIST_INTERVAL)
            await self._try_list()

    async def _wait(self, seconds: float) -> None:
        """Sleep, unless a list is wanted meanwhile."""
        sleeping = asyncio.ensure_future(self._clock.sleep(seconds))
        wanted = asyncio.ensure_future(self._wanted.wait())
        try:
            await asyncio.wait((sleeping, wanted), return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeping.cancel()
            wanted.cancel()
            self._wanted.clear()

    async def _try_list(self) -> None:
        loop = asyncio.get_running_loop()
        before = self._index.entries()
        try:
            bodies = await loop.run_in_executor(self._pool, self._list)
        except ApiError as error:
            self._tell(error)
            return
        missing, self._problem = self._problem, None
        if missing:
            log.info("policies are listed again")
        self._metrics.last_list.set(self._clock.wall())
        self._compare([entry_of(body) for body in bodies if not is_leaving(body)], before)
        if missing and missing[0] == NOT_FOUND:
            self.found()

    def _tell(self, error: ApiError) -> None:
        """One line for a problem, however long it lasts."""
        problem = (error.status, error.reason)
        if problem != self._problem:
            hint = "; install the definition: evictune crd | kubectl apply -f -"
            shown = hint if error.status == NOT_FOUND else ""
            log.error("cannot list policies: %s%s", error, shown)
        self._problem = problem

    def _list(self) -> list[dict[str, Any]]:
        paths = [policies_path(namespace) for namespace in self._namespaces]
        return [body for path in paths for body in self._api.items(path)]

    def _compare(self, listed: list[Entry], before: Mapping[Key, Entry]) -> None:
        """Bring index and scheduler to what the list shows.

        What the watch told while the list was under way is newer than the list.
        """
        first = not self._listed.is_set()
        entries = [e for e in listed if self._index.get(e.key) == before.get(e.key)]
        unseen = [each for each in entries if self._is_news(each)]
        unlisted = before.keys() - {each.key for each in listed}
        gone = [key for key in unlisted if self._index.get(key) == before[key]]
        if not first and (unseen or gone):
            log.warning("the watch had not told of %d policies", len(unseen) + len(gone))
            self._metrics.lost_events.inc(len(unseen) + len(gone))
        self._listed.set()
        for each in entries:
            self._index.put(each)
        for key in gone:
            self._forget(self._index.get(key))
        spread = spread_of(len(entries)) if first else 0.0
        for each in entries:
            self._scheduler.ensure(each, spread=spread)

    def _is_news(self, entry: Entry) -> bool:
        known = self._index.get(entry.key)
        return known is None or known.uid != entry.uid or known.generation < entry.generation

    def _put(self, entry: Entry) -> None:
        self._index.put(entry)
        self._scheduler.ensure(entry)

    def _forget(self, entry: Entry | None) -> None:
        """A policy is gone: the next oldest of its target takes over at once."""
        if entry is None:
            return
        self._index.remove(entry.key)
        self._scheduler.remove(entry.key)
        for other in self._index.sharing(entry):
            self._scheduler.wake(other.key)


def configure(settings: kopf.OperatorSettings, *, namespaced: bool) -> None:
    """Kopf's settings: no Events of its own, no stream that stays silent for long."""
    settings.posting.enabled = False
    settings.watching.server_timeout = WATCH_SERVER_TIMEOUT
    settings.watching.client_timeout = WATCH_CLIENT_TIMEOUT
    settings.watching.connect_timeout = REQUEST_TIMEOUT
    settings.networking.request_timeout = REQUEST_TIMEOUT
    settings.networking.error_backoffs = EndlessBackoffs()
    # Watching namespaces and definitions needs rights that a namespaced operator does not have.
    settings.scanning.disabled = namespaced


def build_registry(
    on_event: Callable[[Mapping[str, Any], bool], Awaitable[None]],
    login: Callable[[], kopf.ConnectionInfo],
    check: Callable[[], None],
    *,
    namespaced: bool,
) -> kopf.OperatorRegistry:
    """Kopf's handlers.

    on_event: takes a policy and whether it was deleted. check: raises what makes the operator not
    alive.
    """
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    def _login(**_: Any) -> kopf.ConnectionInfo:
        return login()

    @kopf.on.startup(registry=registry)
    async def _start(settings: kopf.OperatorSettings, **_: Any) -> None:
        configure(settings, namespaced=namespaced)

    @kopf.on.probe(registry=registry)
    async def _alive(**_: Any) -> None:
        try:
            check()
        # Whatever ended a task of ours: a probe that fails has the operator started anew.
        except Exception as error:
            log.exception("not alive")
            raise kopf.PermanentError(str(error)) from error

    @kopf.on.event(GROUP, VERSION, PLURAL, registry=registry)
    async def _event(event: Mapping[str, Any], **_: Any) -> None:
        await on_event(event["object"], event.get("type") == "DELETED")

    return registry
