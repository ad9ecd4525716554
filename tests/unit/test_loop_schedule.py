"""The schedule: a fixed grid, edits that wake, policies that do not delay each other.

The policy "a" has a uid whose share of an interval is 0.2: its grid is 2, 12, 22 ... seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from evictune.index import Entry, Key
from evictune.kube import ApiError
from evictune.loop import Scheduler, next_due, share_of
from evictune.operator_metrics import OperatorMetrics
from evictune.tick import Outcome

from tests.support.fake_clock import EPOCH, FakeClock, settle

A_FIFTH = "uid-25357"


def entry(name: str, uid: str = "", generation: int = 1) -> Entry:
    target = ("ns", "Deployment", name)
    uid = uid or {"a": A_FIFTH}.get(name, name)
    return Entry("ns", name, uid, generation, "2026-11-29T12:00:00Z", target)


def at(*times: float) -> Any:
    """These times, to within a millisecond."""
    return pytest.approx(times, abs=1e-3)


class Ticks:
    """Records when each policy ticked; `plan` says how a tick goes."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.times: dict[str, list[float]] = {}
        self.plan: dict[str, Callable[[], Awaitable[Outcome | None]]] = {}

    async def __call__(self, key: Key) -> Outcome | None:
        self.times.setdefault(key[1], []).append(self.clock.now)
        if key[1] in self.plan:
            return await self.plan[key[1]]()
        return Outcome(interval=10, generation=1)


def run(scenario: Callable[[FakeClock, Ticks, Scheduler], Awaitable[None]]) -> OperatorMetrics:
    metrics = OperatorMetrics()

    async def body() -> None:
        clock = FakeClock()
        ticks = Ticks(clock)
        scheduler = Scheduler(ticks, metrics, clock.clock)
        await scenario(clock, ticks, scheduler)
        await scheduler.stop()

    asyncio.run(body())
    return metrics


def test_ticks_stay_on_the_grid_however_long_one_takes() -> None:
    async def scenario(clock: FakeClock, ticks: Ticks, scheduler: Scheduler) -> None:
        async def slow() -> Outcome:
            await clock.sleep(3 if len(ticks.times["a"]) != 2 else 14)
            return Outcome(interval=10, generation=1)

        ticks.plan["a"] = slow
        scheduler.ensure(entry("a"))
        await clock.advance(55)
        # The first tick lasts beyond 2. The second from 12 to 26: 22 is left out, 32 is kept.
        assert ticks.times["a"] == at(0, 12, 32, 42, 52)

    run(scenario)


def test_next_check_comes_between_without_moving_the_grid() -> None:
    async def scenario(clock: FakeClock, ticks: Ticks, scheduler: Scheduler) -> None:
        async def check() -> Outcome:
            soon = 4.0 if len(ticks.times["a"]) == 2 else None
            return Outcome(interval=10, generation=1, next_check=soon)

        ticks.plan["a"] = check
        scheduler.ensure(entry("a"))
        await clock.advance(23)
        assert ticks.times["a"] == at(0, 2, 6, 12, 22)

    run(scenario)


def test_an_edit_wakes_and_a_status_write_does_not() -> None:
    async def scenario(clock: FakeClock, ticks: Ticks, scheduler: Scheduler) -> None:
        scheduler.ensure(entry("a", generation=1))
        await clock.advance(3)
        scheduler.ensure(entry("a", generation=1))  # our own status write comes back
        await clock.advance(1)
        assert ticks.times["a"] == at(0, 2)
        scheduler.ensure(entry("a", generation=2))
        await clock.advance(0.5)
        assert ticks.times["a"] == at(0, 2, 4)
        await clock.advance(8)
        assert ticks.times["a"] == at(0, 2, 4, 12)

    run(scenario)


def test_a_hanging_policy_does_not_delay_another() -> None:
    async def scenario(clock: FakeClock, ticks: Ticks, scheduler: Scheduler) -> None:
        async def hang() -> Outcome:
            await asyncio.Event().wait()
            raise AssertionError("never reached")

        ticks.plan["stuck"] = hang
        scheduler.ensure(entry("stuck"))
        scheduler.ensure(entry("a"))
        await clock.advance(35)
        assert ticks.times["a"] == at(0, 2, 12, 22, 32)

    run(scenario)


def test_a_failed_tick_is_counted_and_tried_again_at_the_next_point() -> None:
    async def scenario(clock: FakeClock, ticks: Ticks, scheduler: Scheduler) -> None:
        async def fail() -> Outcome:
            if len(ticks.times["a"]) == 2:
                raise RuntimeError("the API server is away")
            return Outcome(interval=10, generation=1)

        ticks.plan["a"] = fail
        scheduler.ensure(entry("a"))
        await clock.advance(25)
        assert ticks.times["a"] == at(0, 2, 12, 22)
        assert failures(metrics_of(scheduler)) == 1

    run(scenario)


@pytest.mark.parametrize(
    ("error", "traced"),
    [(ApiError(503, "ServiceUnavailable", "away"), False), (KeyError("ours"), True)],
)
def test_only_our_own_mistakes_are_logged_with_a_traceback(
    caplog: pytest.LogCaptureFixture, error: Exception, traced: bool
) -> None:
    async def scenario(clock: FakeClock, ticks: Ticks, scheduler: Scheduler) -> None:
        async def fail() -> Outcome:
            raise error

        ticks.plan["a"] = fail
        scheduler.ensure(entry("a"))
        await clock.advance(1)

    run(scenario)
    (line,) = [each for each in caplog.records if "tick failed" in each.getMessage()]
    assert bool(line.exc_info) is traced


def metrics_of(scheduler: Scheduler) -> OperatorMetrics:
    return scheduler._metrics


def failures(metrics: OperatorMetrics) -> float | None:
    labels = {"namespace": "ns", "policy": "a"}
    return metrics.registry.get_sample_value("evictune_tick_failures_total", labels)


def test_a_policy_whose_ticks_all_fail_shows_since_when_it_is_known() -> None:
    async def scenario(clock: FakeClock, ticks: Ticks, scheduler: Scheduler) -> None:
        async def refused() -> Outcome | None:
            raise ApiError(403, "Forbidden", "no")

        async def slow() -> Outcome | None:
            return Outcome(interval=20, generation=1)

        def shown(name: str) -> float | None:
            labels = {"namespace": "ns", "policy": "a"}
            return metrics_of(scheduler).registry.get_sample_value(f"evictune_{name}", labels)

        await clock.advance(7)
        ticks.plan["a"] = refused
        scheduler.ensure(entry("a"))
        await clock.advance(60)
        assert shown("tick_failures_total") == 3
        assert shown("last_tick_timestamp_seconds") == EPOCH + 7
        assert shown("tick_interval_seconds") == 30
        ticks.plan["a"] = slow
        await clock.advance(30)
        assert shown("last_tick_timestamp_seconds") == pytest.approx(EPOCH + 83)
        assert shown("tick_interval_seconds") == 20

    run(scenario)


def test_a_policy_that_is_gone_stops_and_its_series_go() -> None:
    async def scenario(clock: FakeClock, ticks: Ticks, scheduler: Scheduler) -> None:
        async def gone_at_second() -> Outcome | None:
            return Outcome(10, 1) if len(ticks.times["a"]) == 1 else None

        ticks.plan["a"] = gone_at_second
        scheduler.ensure(entry("a"))
        scheduler.ensure(entry("b"))
        await clock.advance(45)
        assert ticks.times["a"] == at(0, 2)

    metrics = run(scenario)
    labels = {
        sample.labels.get("policy") for f in metrics.registry.collect() for sample in f.samples
    }
    assert labels == {None}


def test_removed_policies_leave_no_series_and_are_not_counted() -> None:
    async def scenario(clock: FakeClock, ticks: Ticks, scheduler: Scheduler) -> None:
        scheduler.ensure(entry("a"))
        scheduler.ensure(entry("b"))
        await clock.advance(1)
        scheduler.remove(("ns", "a"))
        await settle()
        registry = metrics_of(scheduler).registry
        assert registry.get_sample_value("evictune_policies") == 1
        seen = {s.labels.get("policy") for f in registry.collect() for s in f.samples}
        assert seen == {None, "b"}

    run(scenario)


def test_a_policy_made_again_under_its_name_starts_afresh() -> None:
    async def scenario(clock: FakeClock, ticks: Ticks, scheduler: Scheduler) -> None:
        scheduler.ensure(entry("a", uid="first"))
        await clock.advance(1)
        scheduler.ensure(entry("a", uid=A_FIFTH))
        await clock.advance(1)
        assert ticks.times["a"] == at(0, 1)
        await clock.advance(12)
        assert ticks.times["a"] == at(0, 1, 3, 13)

    run(scenario)


def test_many_that_start_together_are_spread() -> None:
    async def scenario(clock: FakeClock, ticks: Ticks, scheduler: Scheduler) -> None:
        for number in range(50):
            scheduler.ensure(entry(f"p{number}"), spread=3.0)
        await clock.advance(3.1)
        firsts = sorted(times[0] for times in ticks.times.values())
        assert len(firsts) == 50
        assert firsts[0] < 0.5
        assert 2.0 < firsts[-1] < 3.0

    run(scenario)


def test_policies_made_in_one_go_tick_all_over_the_interval() -> None:
    async def scenario(clock: FakeClock, ticks: Ticks, scheduler: Scheduler) -> None:
        for number in range(200):
            scheduler.ensure(entry(f"p{number}"))
        await clock.advance(30)
        assert all(times[0] == 0 for times in ticks.times.values())
        by_second = [0] * 10
        for times in ticks.times.values():
            by_second[int(times[2]) % 10] += 1
        assert max(by_second) < 40

    run(scenario)


@pytest.mark.parametrize(
    ("start", "interval", "now", "check_at", "due"),
    [
        (0, 30, 0, None, 30),
        (0, 30, 29.9, None, 30),
        (0, 30, 30, None, 60),
        (7, 30, 100, None, 127),
        (0, 30, 10, 12, 12),
        (0, 30, 10, 31, 30),
        (12, 30, 10, None, 12),
    ],
)
def test_next_due(
    start: float, interval: float, now: float, check_at: float | None, due: float
) -> None:
    assert next_due(start, interval, now, check_at) == due


def test_a_share_is_bounded_and_always_the_same() -> None:
    values = [share_of(f"uid-{number}") for number in range(200)]
    assert all(0 <= value < 1 for value in values)
    assert len(set(values)) > 190
    assert share_of("uid-1") == values[1]
