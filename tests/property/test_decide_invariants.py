"""What decide never does, whatever it is told, over long random histories.

A history is a list of ticks: readings, edits of the policy, engines that follow or do not,
documents that vanish. Effects are carried out, or lost as by an operator that dies.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
from evictune.api.decision import Decision, Memory, Pending, Quarantined, WriteKnobs
from evictune.api.knobs import STOCK_LRU, KnobDocument, KnobValues
from evictune.api.observation import Idle, Observation, TargetState, Unknown, Value
from evictune.api.policy import EvictionPolicy, FleetMode, Mode
from evictune.api.reasons import Reason
from evictune.api.status import memory_from_status, status_of
from evictune.decide import decide
from evictune.decide.situation import QUARANTINE_MOST
from evictune.decide.traffic import alike, fingerprint
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.situations import NOW, XI_512, make_engine, make_policy, observe, ttft

MISSING = Unknown(Reason.SOURCE_UNAVAILABLE, "timed out")
counts = st.sampled_from([Value(0.0), Value(20.0), Value(500.0), MISSING, Idle()])
anything = st.fixed_dictionaries(
    {
        "ttft": st.sampled_from([ttft(0.1), ttft(0.29), ttft(0.6), Idle(), MISSING]),
        "evicted_protected": counts,
        "evicted_tel_safe": counts,
        "evicted_lru": counts,
        "kv_usage": st.sampled_from([Value(0.2), Value(0.97), MISSING]),
        "waiting": st.sampled_from([Value(0.0), Value(9.0)]),
        "queue_time": st.sampled_from([Value(0.0), Value(0.4)]),
        "prefill_rate": st.sampled_from([Value(900.0), Value(2800.0), MISSING]),
        "prompt_tokens_per_request": st.sampled_from([Value(400.0), Value(2000.0), MISSING]),
    }
)
# What makes decide act: without it, most histories would hold no change at all.
violated = st.fixed_dictionaries(
    {
        "ttft": st.sampled_from([ttft(0.4), ttft(0.6), ttft(0.9)]),
        "evicted_protected": st.sampled_from([Value(0.0), Value(500.0)]),
    }
)
readings = st.integers(0, 3).flatmap(lambda number: violated if number else anything)
edits = st.fixed_dictionaries(
    {
        "mode": st.sampled_from(["Auto", "Auto", "Auto", "Recommend", "Observe"]),
        "suspend": st.sampled_from([False, False, False, True]),
        "bounds": st.sampled_from([(32, 4096), (32, 512), (512, 1024), (700, 700)]),
    }
)


@dataclass(frozen=True)
class Tick:
    """One tick's surroundings. `carried_out` False: the operator died before the effects."""

    seconds: int
    readings: dict[str, Any]
    spec: dict[str, Any]
    follow: bool
    restarted: bool
    conflict: bool
    rollout: bool
    replicas: int
    fleet: FleetMode
    carried_out: bool
    document_deleted: bool


rarely = st.integers(0, 19).map(lambda number: number == 0)
mostly = rarely.map(lambda rare: not rare)
calm = st.just({"mode": "Auto", "suspend": False, "bounds": (32, 4096)})
ticks = st.builds(
    Tick,
    st.sampled_from([1, 10, 100, 400]),
    readings,
    st.integers(0, 4).flatmap(lambda number: calm if number else edits),
    mostly,
    rarely,
    rarely,
    rarely,
    st.sampled_from([2, 2, 2, 2, 2, 3]),
    st.sampled_from([FleetMode.AUTO] * 8 + [FleetMode.SUSPEND, FleetMode.RECOMMEND]),
    mostly,
    rarely,
)
histories = st.lists(ticks, min_size=4, max_size=12)


class World:
    """The cluster as it follows from the effects: one document, two engines."""

    def __init__(self) -> None:
        self.now = NOW
        self.memory = Memory()
        self.document: KnobDocument | None = None
        self.in_force: tuple[KnobValues, int] = (STOCK_LRU, 0)

    def before(self, tick: Tick) -> tuple[EvictionPolicy, Observation]:
        """Let time pass; what decide is then told."""
        self.now += tick.seconds
        if tick.document_deleted:
            self.document = None
        if self.document is None or self.document.expires <= self.now:
            self.in_force = (STOCK_LRU, 0)
        elif tick.follow:
            self.in_force = (self.document.values, self.document.revision)
        values, revision = (STOCK_LRU, 0) if tick.restarted else self.in_force
        seen = observe(
            engines=(make_engine(values, revision), make_engine(*self.in_force, engine="1")),
            document=self.document,
            conflict="somebody else" if tick.conflict else "",
            target=TargetState(
                True, tick.replicas, tick.replicas, rollout_in_progress=tick.rollout
            ),
            fleet=tick.fleet,
            **tick.readings,
        )
        low, high = tick.spec["bounds"]
        knobs = {"tlru": {"xiTokens": {"min": low, "max": high}}}
        spec = {"mode": tick.spec["mode"], "suspend": tick.spec["suspend"], "knobs": knobs}
        return make_policy(**spec, behavior={"cooldown": "5m"}), seen

    def after(self, tick: Tick, policy: EvictionPolicy, seen: Observation, told: Decision) -> None:
        """The status as the API server would give it back, and the document."""
        self.memory = memory_from_status(status_of(policy, told, seen, self.now))
        for effect in told.effects:
            if tick.carried_out:
                expires = self.now + effect.ttl
                self.document = KnobDocument(effect.revision, effect.values, expires)


@settings(max_examples=120)
@given(histories)
def test_what_decide_never_does(history: list[Tick]) -> None:
    world = World()
    for tick in history:
        policy, seen = world.before(tick)
        before = world.memory
        told = decide(policy, before, seen, world.now)
        assert told == decide(policy, before, _otherwise(seen), world.now)
        turned = replace(before, quarantine=before.quarantine[::-1])
        assert told.effects == decide(policy, turned, seen, world.now).effects
        for effect in told.effects:
            _check_write(policy, seen, effect)
        begun = told.memory.pending
        known = before.pending.revision if before.pending else 0
        if begun is not None and begun.revision > known:
            _check_change(policy, before, seen, begun, world.now)
            _check_quarantine(policy, before, seen, told, world.now)
        _check_memory(before, told.memory, world.now)
        world.after(tick, policy, seen, told)


def _otherwise(seen: Observation) -> Observation:
    """The same to a judge: read in another order, and with other figures that only people see."""
    engines = (replace(each, capacity_tokens=None, kv_usage=MISSING) for each in seen.engines[::-1])
    return replace(
        seen,
        engines=tuple(engines),
        hit_ratio=MISSING,
        running=Value(99.0),
        metric_names={"ttft": "of another release"},
    )


def _check_write(policy: EvictionPolicy, seen: Observation, effect: WriteKnobs) -> None:
    assert policy.spec.mode is Mode.AUTO
    assert seen.fleet is not FleetMode.RECOMMEND
    assert not seen.conflict
    if policy.spec.suspend or seen.fleet is FleetMode.SUSPEND:
        assert seen.document is not None
        assert (effect.revision, effect.values) == (seen.document.revision, seen.document.values)
    if seen.document is not None:
        assert effect.revision >= seen.document.revision


def _check_change(
    policy: EvictionPolicy, before: Memory, seen: Observation, begun: Pending, now: float
) -> None:
    assert not policy.spec.suspend
    assert seen.fleet is FleetMode.AUTO
    known = [engine.revision or 0 for engine in seen.engines]
    assert begun.revision > max([*known, seen.document.revision if seen.document else 0])
    knobs = policy.spec.knobs.tlru
    assert knobs is not None
    if not begun.change_to.stock:
        xi, q_hat = begun.change_to.xi_tokens or 0, begun.change_to.q_hat_tokens or 0
        assert knobs.xi_tokens.minimum <= xi <= knobs.xi_tokens.maximum
        assert knobs.q_hat_tokens.minimum <= q_hat <= knobs.q_hat_tokens.maximum
    if begun.revert_of:
        assert before.pending is not None
        assert begun.change_to == before.pending.change_from
        assert begun.change_from == before.pending.change_to
        return
    # A change of our own accord: not upon missing readings, and never within a cooldown.
    assert not isinstance(seen.ttft, Unknown | Idle)
    assert not seen.target.rollout_in_progress
    assert before.scale is None or before.scale.replicas == seen.target.desired_replicas
    assert begun.change_to != begun.change_from
    if before.last_change_time is not None:
        assert now - before.last_change_time >= policy.spec.behavior.cooldown


def _check_quarantine(
    policy: EvictionPolicy, before: Memory, seen: Observation, told: Decision, now: float
) -> None:
    """No value in quarantine is begun, unless it is restored or the search is at its end."""
    begun = told.memory.pending
    assert begun is not None
    (message,) = [each.message for each in told.audit if each.reason is Reason.INTENDED] or [""]
    if begun.revert_of or "no untried value" in message:
        return
    kept = [each.values for each in before.quarantine if _is_barred(each, policy, seen, now)]
    assert begun.change_to not in kept


def _is_barred(each: Quarantined, policy: EvictionPolicy, seen: Observation, now: float) -> bool:
    return each.until > now and alike(each.fingerprint, fingerprint(policy, seen))


def _check_memory(before: Memory, after: Memory, now: float) -> None:
    in_force = after.applied.values if after.applied and after.pending is None else None
    barred = [each for each in after.quarantine if each.until > now]
    assert in_force is None or in_force not in [each.values for each in barred]
    assert len({(each.values, each.fingerprint) for each in after.quarantine}) == len(
        after.quarantine
    )
    for each in after.quarantine:
        assert each.until <= now + QUARANTINE_MOST
        assert each.times <= 1 + max((b.times for b in before.quarantine), default=0)
    if before.last_change_time is not None:
        assert after.last_change_time is not None
        assert after.last_change_time >= before.last_change_time - 1


@pytest.mark.parametrize("times", [1, 2, 5, 40])
def test_quarantine_is_honoured_to_its_end_and_no_longer(times: int) -> None:
    """xi 512 is where the search begins; once it was left, not before its time is over."""
    traffic = fingerprint(make_policy(), observe())
    lasting = Quarantined(XI_512, traffic, NOW + 10, Reason.REVERTED, 0.6, times=times)
    stock = replace(lasting, values=STOCK_LRU)
    memory = Memory(quarantine=(stock, lasting))
    early = decide(make_policy(), memory, observe(), NOW + 9.9).memory
    late = decide(make_policy(), memory, observe(), NOW + 10.0).memory
    assert early.pending is None or early.pending.change_to != XI_512
    assert late.pending is not None
    assert late.pending.change_to == XI_512
    forgotten = decide(make_policy(), memory, observe(0.1), NOW + 10 + QUARANTINE_MOST).memory
    assert forgotten.quarantine == ()


@settings(max_examples=30)
@given(histories)
def test_left_alone_every_change_comes_to_an_end(history: list[Tick]) -> None:
    """After any history: calm readings and obedient engines leave nothing pending."""
    world = World()
    for tick in history:
        policy, seen = world.before(tick)
        world.after(tick, policy, seen, decide(policy, world.memory, seen, world.now))
    quiet = replace(
        history[-1],
        seconds=100,
        spec={"mode": "Auto", "suspend": False, "bounds": (32, 4096)},
        readings={"ttft": ttft(0.1)},
        follow=True,
        restarted=False,
        conflict=False,
        rollout=False,
        carried_out=True,
        document_deleted=False,
        replicas=2,
        fleet=FleetMode.AUTO,
    )
    for _ in range(45):
        policy, seen = world.before(quiet)
        told = decide(policy, world.memory, seen, world.now)
        world.after(quiet, policy, seen, told)
    assert world.memory.pending is None
    assert told.memory.regime is not None
    assert told.memory.regime.name is Reason.HEALTHY
    wanted = world.memory.applied.values if world.memory.applied else STOCK_LRU
    assert world.in_force[0] == wanted
