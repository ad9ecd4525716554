"""Index and scheduler follow the policies that exist, through the watch or without it."""

from __future__ import annotations

import asyncio
import functools
import itertools
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import kopf
import pytest
from evictune import run
from evictune.api.sources import OperatorConfiguration
from evictune.handlers import FIRST_LIST_RETRY, RELIST_INTERVAL, Follower, build_registry, configure
from evictune.index import Key, PolicyIndex, entry_of
from evictune.kube import ApiError
from evictune.loop import Scheduler
from evictune.operator_metrics import OperatorMetrics
from evictune.tick import Outcome
from kopf._core.intents.causes import Activity

from tests.support.fake_api import FakeApi
from tests.support.fake_clock import FakeClock, settle

ALL = "/apis/evictune.io/v1alpha1/evictionpolicies"


def body(name: str, created: str = "2026-11-29T12:00:00Z", **metadata: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "namespace": "ns",
            "name": name,
            "uid": f"uid-{name}",
            "generation": 1,
            "creationTimestamp": created,
            **metadata,
        },
        "spec": {"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "chat-8b"}},
    }


class Scene:
    """A follower of an API server in memory, with ticks that only record."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.api = FakeApi()
        self.index = PolicyIndex()
        self.metrics = OperatorMetrics()
        self.ticks: list[tuple[str, float]] = []
        self.closed = False
        self.scheduler = Scheduler(self.tick, self.metrics, self.clock.clock)
        self.pool = ThreadPoolExecutor(1)
        self.follower = Follower(
            self.api,  # type: ignore[arg-type]
            self.index,
            self.scheduler,
            self.metrics,
            self.pool,
            [],
            self.clock.clock,
            self.close,
        )

    async def tick(self, key: Key) -> Outcome:
        self.ticks.append((key[1], self.clock.now))
        return Outcome(interval=1e6, generation=1)

    async def start(self) -> None:
        """Lead, and let the first list come back from its thread."""
        self.follower.start(settle())
        await threads()

    async def close(self) -> None:
        self.closed = True

    async def list_now(self) -> None:
        """Let the periodic list come round; it runs in a thread of its own."""
        await self.clock.advance(RELIST_INTERVAL)
        await threads()

    def ticked(self) -> list[str]:
        return [name for name, _ in self.ticks]


async def threads() -> None:
    """Let what runs in a thread come back."""
    for _ in range(50):
        await asyncio.sleep(0.002)


def play(scenario: Callable[[Scene], Awaitable[None]]) -> Scene:
    async def run() -> Scene:
        scene = Scene()
        await scenario(scene)
        await scene.follower.stop()
        scene.pool.shutdown()
        return scene

    return asyncio.run(run())


def test_what_exists_at_start_is_followed_and_rivals_are_known_before_the_first_tick() -> None:
    async def scenario(scene: Scene) -> None:
        scene.api.put(f"{ALL}/young", body("young", "2026-11-29T13:00:00Z"))
        scene.api.put(f"{ALL}/old", body("old"))
        await scene.start()
        rival = scene.index.older_rival(("ns", "young"))
        assert rival is not None
        assert rival.name == "old"
        assert scene.index.older_rival(("ns", "old")) is None
        await settle()
        assert sorted(scene.ticked()) == ["old", "young"]

    assert play(scenario).closed


def test_the_watch_starts_wakes_and_stops() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.start()
        await scene.follower.on_event(body("a"), deleted=False)
        await settle()
        await scene.follower.on_event(body("a"), deleted=False)
        await settle()
        assert scene.ticked() == ["a"]
        await scene.follower.on_event(body("a", generation=2), deleted=False)
        await settle()
        assert scene.ticked() == ["a", "a"]
        await scene.follower.on_event(body("a"), deleted=True)
        assert scene.index.entries() == {}
        assert scene.metrics.registry.get_sample_value("evictune_policies") == 0

    play(scenario)


def test_the_younger_takes_over_when_the_older_goes() -> None:
    async def scenario(scene: Scene) -> None:
        scene.api.put(f"{ALL}/old", body("old"))
        scene.api.put(f"{ALL}/young", body("young", "2026-11-29T13:00:00Z"))
        await scene.start()
        await settle()
        scene.ticks.clear()
        await scene.follower.on_event(body("old", deletionTimestamp="now"), deleted=False)
        await settle()
        assert scene.ticked() == ["young"]
        assert scene.index.older_rival(("ns", "young")) is None

    play(scenario)


def test_a_silent_watch_is_made_up_for_by_the_list() -> None:
    async def scenario(scene: Scene) -> None:
        scene.api.put(f"{ALL}/edited", body("edited"))
        scene.api.put(f"{ALL}/deleted", body("deleted"))
        await scene.start()
        await settle()
        scene.ticks.clear()
        scene.api.put(f"{ALL}/edited", body("edited", generation=2))
        scene.api.put(f"{ALL}/made", body("made"))
        del scene.api.objects[f"{ALL}/deleted"]
        await scene.list_now()
        assert sorted(scene.ticked()) == ["edited", "made"]
        assert scene.index.entries().keys() == {("ns", "edited"), ("ns", "made")}
        sample = scene.metrics.registry.get_sample_value("evictune_lost_watch_events_total")
        assert sample == 3

    play(scenario)


def test_what_the_watch_tells_during_a_list_is_newer_than_the_list() -> None:
    """A policy made meanwhile is not forgotten; one deleted meanwhile is no rival any more."""

    async def scenario(scene: Scene) -> None:
        loop = asyncio.get_running_loop()
        scene.api.put(f"{ALL}/deleted", body("deleted"))
        await scene.start()
        await settle()

        async def watch() -> None:
            await scene.follower.on_event(body("made"), deleted=False)
            await scene.follower.on_event(body("deleted"), deleted=True)

        def meanwhile(method: str, path: str) -> None:
            scene.api.fault = lambda method, path: None
            asyncio.run_coroutine_threadsafe(watch(), loop).result(10)

        scene.api.fault = meanwhile
        await scene.list_now()
        assert scene.index.entries().keys() == {("ns", "made")}
        assert scene.index.older_rival(("ns", "made")) is None
        assert scene.metrics.registry.get_sample_value("evictune_lost_watch_events_total") == 0

    play(scenario)


def test_an_api_server_that_is_away_at_start_is_asked_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(scene: Scene) -> None:
        scene.api.fault = lambda method, path: ApiError(404, "NotFound", "no such resource")
        await scene.start()
        assert "evictune crd | kubectl apply" in caplog.text
        scene.api.fault = lambda method, path: None
        scene.api.put(f"{ALL}/a", body("a"))
        await scene.list_now()
        assert scene.ticked() == ["a"]

    play(scenario)


def test_the_same_second_is_decided_by_name() -> None:
    index = PolicyIndex()
    for name in ("b", "a"):
        index.put(entry_of(body(name)))
    rival = index.older_rival(("ns", "b"))
    assert rival is not None
    assert rival.name == "a"


def test_another_kind_or_namespace_is_another_target() -> None:
    index = PolicyIndex()
    index.put(entry_of(body("a")))
    other = body("b")
    other["spec"]["targetRef"]["kind"] = "StatefulSet"
    index.put(entry_of(other))
    index.put(entry_of(body("c", namespace="elsewhere")))
    assert index.older_rival(("ns", "b")) is None
    assert index.older_rival(("elsewhere", "c")) is None


def test_kopf_gets_nothing_that_adds_finalizers_or_patches() -> None:
    def unused() -> Any:
        raise AssertionError("not called before the operator runs")

    registry = build_registry(unused, unused, unused, namespaced=True)
    for family in (registry._changing, registry._spawning, registry._indexing):
        assert list(family.get_all_handlers()) == []
    assert len(list(registry._watching.get_all_handlers())) == 1
    settings = kopf.OperatorSettings()
    configure(settings, namespaced=True)
    assert settings.posting.enabled is False
    assert settings.scanning.disabled is True
    assert settings.watching.server_timeout is not None
    assert settings.watching.client_timeout is not None
    assert settings.watching.server_timeout <= settings.watching.client_timeout <= 300


def test_an_api_server_that_stays_away_does_not_end_the_operator() -> None:
    settings = kopf.OperatorSettings()
    configure(settings, namespaced=False)
    backoffs = settings.networking.error_backoffs
    for _ in range(2):  # every request starts over
        first = list(itertools.islice(backoffs, 1000))  # type: ignore[arg-type]
        assert len(first) == 1000
        assert max(first) <= 10


def activity(registry: kopf.OperatorRegistry, kind: Activity) -> Callable[..., Awaitable[None]]:
    """The handler of one of Kopf's activities."""
    (found,) = [each for each in registry._activities.get_all_handlers() if each.activity == kind]
    function: Any = found.fn
    return functools.partial(function, settings=kopf.OperatorSettings())


def test_nothing_is_listed_or_ticked_before_the_operator_leads() -> None:
    async def scenario(scene: Scene) -> None:
        scene.api.put(f"{ALL}/a", body("a"))
        won = asyncio.Event()
        scene.follower.start(won.wait())
        await scene.follower.on_event(body("a"), deleted=False)
        await scene.list_now()
        assert scene.index.entries() == {}
        won.set()
        await threads()
        assert scene.ticked() == ["a"]

    play(scenario)


def test_a_mistake_of_ours_that_ends_the_listing_fails_the_probe(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(scene: Scene) -> None:
        unused: Any = None
        registry = build_registry(unused, unused, scene.follower.check, namespaced=True)
        probe = activity(registry, Activity.PROBE)
        await scene.start()
        await probe()

        def mistaken(method: str, path: str) -> None:
            raise ZeroDivisionError("a mistake of ours")

        scene.api.fault = mistaken
        await scene.list_now()
        with pytest.raises(kopf.PermanentError, match="a mistake of ours"):
            await probe()

    play(scenario)
    assert "ZeroDivisionError" in caplog.text


def test_a_watch_that_ended_is_made_up_for_by_a_list_at_once() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.start()
        scene.api.put(f"{ALL}/made", body("made"))
        scene.follower.relist()
        await threads()
        assert scene.ticked() == ["made"]

    play(scenario)


def test_a_missing_definition_is_told_once_and_its_return_renews_the_watch(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(scene: Scene) -> None:
        renewed: list[float] = []
        scene.follower.found = lambda: renewed.append(scene.clock.now)
        await scene.start()
        scene.api.fault = lambda method, path: ApiError(404, "NotFound", "no such resource")
        await scene.list_now()
        for _ in range(3):
            await scene.clock.advance(FIRST_LIST_RETRY)
            await threads()
        assert caplog.text.count("evictune crd | kubectl apply") == 1
        assert renewed == []
        scene.api.fault = lambda method, path: None
        scene.api.put(f"{ALL}/a", body("a"))
        await scene.clock.advance(FIRST_LIST_RETRY)
        await threads()
        assert len(renewed) == 1
        assert scene.ticked() == ["a"]

    play(scenario)


class Dated:
    """In place of the Observer: keeps the clock that it was given."""

    clocks: ClassVar[list[Callable[[], float]]] = []

    def __init__(self, cluster: object, sources: object, clock: Callable[[], float]) -> None:
        self.clocks.append(clock)

    async def close(self) -> None:
        """Holds nothing."""


def test_what_is_seen_is_dated_by_a_clock_that_is_never_set_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run, "Observer", Dated)
    api: Any = FakeApi()
    with ThreadPoolExecutor(1) as pool:
        run._follower(api, OperatorConfiguration(), OperatorMetrics(), pool, [])
    assert Dated.clocks == [time.monotonic]
