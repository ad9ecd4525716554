"""What a change of the memory fraction never does, over long random histories.

A history is a list of ticks: shortages and calm, edits of the policy, rollouts, engines that crash
or die of a fraction, documents that vanish, an operator that dies between its two writes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from evictune.api.decision import Decision, Memory
from evictune.api.disruption import DisruptionPolicy
from evictune.api.observation import Idle, Observation, Unknown, Value
from evictune.api.policy import EvictionPolicy, FleetMode, Mode
from evictune.api.reasons import Reason
from evictune.api.schedule import open_until
from evictune.decide import decide
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.memory_world import HOLDING, MANIFEST, MemoryWorld, memory_policy
from tests.support.situations import ttft

ALLOW: dict[str, Any] = {"policy": "Allow", "maxPerDay": 24}
# Open for an hour out of two: most histories meet both.
WINDOWS = [{"cron": "0 */2 * * *", "duration": "1h"}]
disruptions = st.sampled_from(
    [
        ALLOW,
        ALLOW,
        {"policy": "WhenRedundant", "maxPerDay": 24},
        {"policy": "WhenRedundant", "maxPerDay": 24, "minReady": 2},
        {**ALLOW, "windows": WINDOWS},
        {"policy": "Never"},
        {"policy": "WhenRedundant", "maxPerDay": 1},
    ]
)
readings = st.sampled_from(
    [
        *[dict(HOLDING)] * 5,
        {"kv_usage": Value(0.3)},
        {"ttft": ttft(0.1), "kv_usage": Value(0.3)},
        {"kv_usage": Value(1.0), "running": Value(70.0), "waiting": Value(200.0)},
        {"ttft": Unknown(Reason.SOURCE_UNAVAILABLE, "timed out")},
        {"ttft": Idle()},
    ]
)
rarely = st.integers(0, 19).map(lambda number: number == 0)
mostly = rarely.map(lambda rare: not rare)
FRACTIONS = [Decimal("0.87"), Decimal("0.89")]


@dataclass(frozen=True)
class Tick:
    """What happens from one tick to the next. carried_out False: the operator died in between."""

    seconds: int
    readings: dict[str, Any]
    disruption: dict[str, Any]
    mode: str
    suspend: bool
    most: str
    crash: int | None
    replaced: int | None
    replacing: bool
    deleted: bool
    conflict: bool
    elsewhere: bool
    fleet: FleetMode
    carried_out: bool


def sometimes(values: Any) -> Any:
    """None nineteen times in twenty."""
    return st.integers(0, 19).flatmap(lambda number: st.none() if number else values)


ticks = st.builds(
    Tick,
    st.sampled_from([10, 30, 100, 300, 1000]),
    readings,
    st.integers(0, 5).flatmap(lambda n: st.just(ALLOW) if n else disruptions),
    st.sampled_from(["Auto"] * 12 + ["Recommend", "Observe"]),
    rarely,
    st.sampled_from(["0.94"] * 8 + ["0.88", "0.86"]),
    sometimes(st.integers(0, 1)),
    sometimes(st.integers(0, 1)),
    rarely,
    rarely,
    rarely,
    rarely,
    st.sampled_from([FleetMode.AUTO] * 12 + [FleetMode.SUSPEND, FleetMode.RECOMMEND]),
    st.integers(0, 5).map(bool),
)
fates = st.sampled_from(["good", "good", "no start", "dies", "worse", "useless"])
histories = st.tuples(
    st.lists(ticks, min_size=10, max_size=40),
    st.integers(1, 3),
    st.tuples(fates, fates),
)


def _world(pods: int, fates: tuple[str, str]) -> MemoryWorld:
    world = MemoryWorld(pods)
    for fraction, fate in zip(FRACTIONS, fates, strict=True):
        if fate == "no start":
            world.starts_fail.add(fraction)
        elif fate == "dies":
            world.dies_after[fraction] = 130.0
        elif fate == "worse":
            world.worse.add(fraction)
        elif fate == "useless":
            world.useless.add(fraction)
    return world


def _before(world: MemoryWorld, tick: Tick) -> Observation:
    """Let time pass and things happen; what the operator then sees."""
    knobs = {"gpuMemoryUtilization": {"min": "0.80", "max": tick.most, "step": "0.02"}}
    world.policy = memory_policy(tick.disruption, mode=tick.mode, suspend=tick.suspend, knobs=knobs)
    if tick.deleted:
        world.document = None
    if tick.crash is not None:
        world.crash(tick.crash % len(world.pods))
    if tick.replaced is not None:
        world.replace_pod(tick.replaced % len(world.pods))
    world.advance(tick.seconds)
    world.target = {"replacing": True, "rollout_in_progress": True} if tick.replacing else {}
    world.elsewhere = "another policy's engine is restarting" if tick.elsewhere else ""
    world.readings = {
        **tick.readings,
        "fleet": tick.fleet,
        "conflict": "somebody else" if tick.conflict else "",
    }
    return world.observe()


@settings(max_examples=150, deadline=None)
@given(histories)
def test_what_a_change_of_the_fraction_never_does(
    history: tuple[list[Tick], int, tuple[str, str]],
) -> None:
    happenings, pods, ends = history
    world = _world(pods, ends)
    for tick in happenings:
        seen = _before(world, tick)
        before = world.memory
        asked = {(pod.name, word) for pod in world.pods for word in pod.words}
        told = decide(world.policy, before, seen, world.now)
        turned = replace(seen, pods=seen.pods[::-1], engines=seen.engines[::-1])
        assert told == decide(world.policy, before, turned, world.now)
        _check_restart(world, seen, told, asked)
        _check_begun(world, before, told)
        _check_fractions(world.policy, told)
        world.tick(carried_out=tick.carried_out)


def _check_restart(
    world: MemoryWorld, seen: Observation, told: Decision, done: set[tuple[str, str]]
) -> None:
    """A pod that is newly asked to restart: only where, when and while it may."""
    valid = seen.document if seen.document and seen.document.expires > world.now else None
    known = {} if valid is None else {name: e.restart for name, e in valid.pods.items()}
    for effect in told.effects:
        words = {name: entry.restart for name, entry in effect.pods.items() if entry.restart}
        assert len(words) <= 1
        for name, word in words.items():
            if known.get(name) == word or (name, word) in done:
                continue
            disruption = world.policy.spec.behavior.disruption
            ready = [pod for pod in seen.pods if pod.ready]
            assert world.policy.spec.mode is Mode.AUTO
            assert not world.policy.spec.suspend
            assert seen.fleet is FleetMode.AUTO
            assert not seen.conflict
            assert not seen.restart_elsewhere
            assert not seen.target.replacing
            assert disruption.policy is not DisruptionPolicy.NEVER
            assert len(ready) == len(seen.pods), "never two away at once"
            assert len(ready) - 1 >= disruption.least_ready
            if disruption.windows:
                assert open_until(disruption.windows, world.now) is not None


def _check_begun(world: MemoryWorld, before: Memory, told: Decision) -> None:
    """A change that begins: one step, within bounds, not of what failed, not too often."""
    begun = told.memory.pending
    if begun is None or not begun.of_memory or begun.revert_of:
        return
    if before.pending is not None and before.pending.decision_id == begun.decision_id:
        return
    spec = world.policy.spec
    bounds, wanted = spec.knobs.gpu_memory_utilization, begun.change_to.fraction
    assert bounds is not None
    assert wanted is not None
    assert bounds.minimum <= wanted <= bounds.maximum
    assert wanted - (begun.change_from.fraction or MANIFEST) <= bounds.step
    barred = [
        each.values.fraction
        for each in before.quarantine
        if each.until > world.now and each.reason is Reason.ENGINE_FAILED
    ]
    down = wanted < (begun.change_from.fraction or MANIFEST)
    assert down or not any(left is not None and left <= wanted for left in barred)
    lately = [each for each in before.disruptions if each > world.now - 86400]
    assert len(lately) < spec.behavior.disruption.max_per_day


def _check_fractions(policy: EvictionPolicy, told: Decision) -> None:
    """The default entry is never a fraction that is only being tried."""
    pending = told.memory.pending
    if pending is None or not pending.of_memory or pending.revert_of:
        return
    for effect in told.effects:
        concluded = not effect.pods
        assert concluded or effect.values.fraction == pending.change_from.fraction


@settings(max_examples=60, deadline=None)
@given(histories)
def test_left_alone_every_change_comes_to_an_end(
    history: tuple[list[Tick], int, tuple[str, str]],
) -> None:
    """After any history: nothing pending, every engine there, none in doubt of its fraction."""
    happenings, pods, ends = history
    world = _world(pods, ends)
    for tick in happenings:
        _before(world, tick)
        world.tick(carried_out=tick.carried_out)
    world.policy, world.target, world.elsewhere = memory_policy(ALLOW), {}, ""
    world.readings = {"ttft": ttft(0.1), "kv_usage": Value(0.3)}
    for _ in range(60):
        world.advance(100)
        world.tick()
    assert world.memory.pending is None
    # What nobody may take back any more, an engine may die of again and again.
    assert all(pod.ready for pod in world.pods if pod.fraction not in world.dies_after)
    kept = world.memory.applied.values.fraction if world.memory.applied else None
    if kept is not None:
        assert world.document is not None
        assert world.document.values.fraction == kept
        assert world.document.pods == {}


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 60), max_size=6, unique=True), st.integers(2, 3))
def test_killed_at_any_point_the_change_is_made_once(kills: list[int], pods: int) -> None:
    """The operator dies between status and document at these ticks: the end is the same."""
    world = MemoryWorld(pods)
    number = 0
    while Reason.KEPT not in world.told and number < 400:
        world.tick(carried_out=number not in kills)
        world.advance(10)
        number += 1
    assert world.fractions == ["0.87"] * pods
    assert [pod.restarts for pod in world.pods] == [1] * pods
    assert world.told.count(Reason.INTENDED) == 1
    assert world.told.count(Reason.ENGINE_RESTARTED) == pods
    assert not world.memory.quarantine
