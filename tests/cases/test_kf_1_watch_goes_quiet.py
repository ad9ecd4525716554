"""KF-1: the stream of the watch gives nothing more, without an error; or 410 Gone. Field case 42.

Every tick reads its policy afresh, a periodic list is the backstop, and every request of the watch
has a time limit. 410 and a stream that ends against a real API server: tests/integration/
test_operator_away.py and test_operator_lifecycle.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import kopf
from evictune.handlers import RELIST_INTERVAL, Follower, configure
from evictune.index import Key, PolicyIndex
from evictune.kube import ApiError, KubeApi
from evictune.loop import Scheduler
from evictune.operator_metrics import OperatorMetrics
from evictune.tick import Outcome

from tests.support.fake_api import FakeApi
from tests.support.fake_clock import EPOCH, FakeClock, settle
from tests.support.loop_case import POLICIES, LoopCase, policy_body
from tests.support.loop_case import play as play_loop

ALL = "/apis/evictune.io/v1alpha1/evictionpolicies"
FIVE_MINUTES = 300.0


class Watched:
    """What follows the policies, before an API server in memory whose watch says nothing."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.api = FakeApi()
        self.metrics = OperatorMetrics()
        self.ticked: list[tuple[str, float]] = []
        self.pool = ThreadPoolExecutor(1)
        self.follower = Follower(
            cast("KubeApi", self.api),
            PolicyIndex(),
            Scheduler(self._tick, self.metrics, self.clock.clock),
            self.metrics,
            self.pool,
            [],
            self.clock.clock,
            self._close,
        )

    async def _tick(self, key: Key) -> Outcome:
        self.ticked.append((key[1], self.clock.now))
        body = self.api.objects[f"{ALL}/{key[1]}"]
        return Outcome(interval=10_000.0, generation=body["metadata"]["generation"])

    async def _close(self) -> None: ...

    async def start(self) -> None:
        self.follower.start(settle())
        await self._threads()

    async def pass_time(self, seconds: float) -> None:
        end = self.clock.now + seconds
        while self.clock.now < end:
            await self.clock.advance(min(20.0, end - self.clock.now))
            await self._threads()

    async def _threads(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0.001)

    def put(self, name: str, **metadata: Any) -> dict[str, Any]:
        body = policy_body(name)
        body["metadata"] |= {"uid": f"uid-{name}", **metadata}
        return self.api.put(f"{ALL}/{name}", body)

    def sample(self, name: str) -> float:
        return self.metrics.registry.get_sample_value(f"evictune_{name}") or 0.0


def watched(scenario: Callable[[Watched], Awaitable[None]]) -> None:
    async def run() -> None:
        made = Watched()
        await scenario(made)
        await made.follower.stop()
        made.pool.shutdown()

    asyncio.run(run())


def test_an_edit_that_the_watch_does_not_tell_of_is_noticed_within_five_minutes() -> None:
    async def scenario(world: Watched) -> None:
        world.put("owl-chat")
        await world.start()
        await world.pass_time(FIVE_MINUTES)
        assert len(world.ticked) == 1
        edited = world.clock.now
        world.put("owl-chat", generation=2)
        await world.pass_time(FIVE_MINUTES)
        assert len(world.ticked) == 2
        assert world.ticked[1][1] - edited <= RELIST_INTERVAL <= FIVE_MINUTES
        assert world.sample("lost_watch_events_total") >= 1
        age = EPOCH + world.clock.now - world.sample("last_list_timestamp_seconds")
        assert age <= RELIST_INTERVAL

    watched(scenario)


def test_a_policy_made_and_another_deleted_in_silence_are_noticed() -> None:
    async def scenario(world: Watched) -> None:
        world.put("owl-chat")
        await world.start()
        del world.api.objects[f"{ALL}/owl-chat"]
        world.put("owl-new")
        await world.pass_time(FIVE_MINUTES)
        assert [name for name, _ in world.ticked] == ["owl-chat", "owl-new"]
        assert world.sample("policies") == 1

    watched(scenario)


def test_a_list_that_fails_for_a_while_forgets_nothing() -> None:
    """Neither a 410 nor an outage is an empty list."""

    async def scenario(world: Watched) -> None:
        world.put("owl-chat")
        await world.start()
        for error in (ApiError(410, "Expired", "too old"), ApiError(0, "Unreachable", "refused")):
            world.api.fault = lambda method, path, error=error: error  # type: ignore[misc]
            await world.pass_time(FIVE_MINUTES)
            assert world.sample("policies") == 1
        world.api.fault = lambda method, path: None
        world.put("owl-new")
        await world.pass_time(FIVE_MINUTES)
        assert [name for name, _ in world.ticked] == ["owl-chat", "owl-new"]

    watched(scenario)


def test_what_the_watch_tells_late_of_an_older_state_is_no_news() -> None:
    """An edit lost between list and watch: the list has it, and the old event changes nothing."""

    async def scenario(world: Watched) -> None:
        old = world.put("owl-chat", generation=2)
        world.put("owl-chat", generation=3)
        await world.start()
        await world.follower.on_event(old, False)
        await world.pass_time(30)
        assert len(world.ticked) == 1

    watched(scenario)


def test_every_request_of_the_watch_has_a_time_limit() -> None:
    settings = kopf.OperatorSettings()
    configure(settings, namespaced=False)
    assert 0 < (settings.watching.server_timeout or 0) <= FIVE_MINUTES
    assert 0 < (settings.watching.client_timeout or 0) <= FIVE_MINUTES
    assert 0 < (settings.watching.connect_timeout or 0) <= 60
    assert 0 < (settings.networking.request_timeout or 0) <= FIVE_MINUTES


def test_a_tick_reads_its_policy_afresh_whatever_the_watch_said() -> None:
    case = LoopCase()

    async def scenario(case: LoopCase) -> None:
        await case.tick()
        case.edit(mode="Observe")
        await case.run(120)
        assert case.status["observedGeneration"] == 2
        assert case.condition("Ready")[2] == "Followed in mode Observe."
        assert case.api.objects[f"{POLICIES}/owl-chat"]["metadata"]["generation"] == 2

    play_loop(scenario, case)
