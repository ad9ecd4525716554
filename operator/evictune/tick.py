"""One tick of one policy: read it afresh, observe, decide, act, tell.

Faults of the outside world that `observe` knows are part of the observation. What else goes wrong
ends the tick; the next one starts from facts again.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Executor as Pool
from dataclasses import dataclass, replace
from typing import Any, ParamSpec, Protocol, TypeVar

from evictune.act.executor import Executor
from evictune.act.knobs import ForeignManagerError, StaleObjectError, StoredKnobs
from evictune.api.decision import ConditionType, Decision, Memory
from evictune.api.observation import Interval, Observation, Value
from evictune.api.parse import parse_policy
from evictune.api.policy import EvictionPolicy, FleetMode, Mode
from evictune.api.quantity import FieldError, format_fraction
from evictune.api.reasons import Reason
from evictune.api.status import invalid_status, memory_from_status, status_of, unready_status
from evictune.decide import decide
from evictune.index import Key, PolicyIndex, is_leaving
from evictune.kube import ApiError, KubeApi, policies_path
from evictune.logs import about
from evictune.operator_metrics import OperatorMetrics
from evictune.restart_budget import RestartBudget

# A policy that cannot be understood is looked at again this often; an edit wakes it at once.
INVALID_INTERVAL = 60.0
RETRY_STALE = 0.5

_TTFT = ("ttft_seconds", "ttft_lower_seconds", "ttft_upper_seconds", "ttft_requests")
_READINGS = (
    "queue_time",
    "kv_usage",
    "preemptions",
    "hit_ratio",
    "running",
    "waiting",
    "prefill_rate",
    "uncached_tokens",
    "evicted_protected",
    "evicted_tel_safe",
    "evicted_lru",
    "recomputed_tokens",
    "prompt_tokens_per_request",
)

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger(__name__)


class Observer(Protocol):
    """What `observe` offers."""

    async def observe(self, policy: EvictionPolicy) -> Observation:
        """Never raises for faults of the outside world."""
        ...


@dataclass(frozen=True)
class Outcome:
    """When to look again: every `interval` seconds, or once after `next_check`."""

    interval: float
    generation: int
    next_check: float | None = None


class Ticker:
    """Carries out ticks. Blocking calls run in `pool`; `clock` gives seconds since the epoch.

    fleet: the administrator's switch over all policies.
    """

    def __init__(
        self,
        api: KubeApi,
        observer: Observer,
        index: PolicyIndex,
        metrics: OperatorMetrics,
        pool: Pool,
        clock: Callable[[], float],
        fleet: FleetMode = FleetMode.AUTO,
    ) -> None:
        self._api = api
        self._executor = Executor(api)
        self._observer = observer
        self._index = index
        self._metrics = metrics
        self._pool = pool
        self._clock = clock
        self._fleet = fleet
        self._restarts = RestartBudget(index)
        self._told: dict[Key, str] = {}
        self._seen: set[Key] = set()

    async def tick(self, key: Key) -> Outcome | None:
        """One tick; None if the policy is gone. Raises what makes a tick fail."""
        try:
            return await self._tick(key)
        finally:
            # Whatever ended it early: what an earlier tick saw is not known to be so now.
            if key not in self._seen:
                self._metrics.lose_sight(key)
            self._seen.discard(key)

    async def _tick(self, key: Key) -> Outcome | None:
        namespace, name = key
        body = await self._blocking(self._api.get_or_none, f"{policies_path(namespace)}/{name}")
        if body is None or is_leaving(body):
            self._told.pop(key, None)
            return None
        generation = body["metadata"].get("generation", 0)
        try:
            policy = parse_policy(body)
        except FieldError as error:
            self._restarts.note(key, memory_from_status(body.get("status") or {}))
            await self._blocking(self._executor.definition.check, body)
            await self._remember(body, invalid_status(body, error, self._clock()))
            return Outcome(INVALID_INTERVAL, generation)
        return await self._follow(body, policy)

    async def _follow(self, body: Mapping[str, Any], policy: EvictionPolicy) -> Outcome:
        interval = policy.spec.behavior.interval
        check = self._executor.check_definition
        await self._blocking(check, body, policy, self._clock())
        memory = memory_from_status(policy.status)
        await self._tell_again(policy, memory)
        try:
            stored, observation = await asyncio.gather(
                self._blocking(self._executor.knobs.read, policy),
                self._observer.observe(policy),
            )
        except ApiError as error:
            await self._tell_refusal(body, error)
            raise
        observation = self._complete(policy, observation, stored)
        now = self._clock()
        decision = decide(policy, memory, observation, now)
        self._restarts.note((policy.namespace, policy.name), decision.memory)
        wanted = status_of(policy, decision, observation, now)
        try:
            await self._remember(body, wanted)
            self._tell(policy, decision, observation)
            carry_out = self._executor.carry_out
            if not await self._blocking(carry_out, policy, decision, stored, now):
                self._told.pop((policy.namespace, policy.name), None)
        except ApiError as error:
            if not error.status:
                # Without an answer: if it was written, its Events are still to be emitted.
                self._told.pop((policy.namespace, policy.name), None)
            raise
        except StaleObjectError as error:
            log.info("%s; deciding afresh", error, extra=about(policy.namespace, policy.name))
            return Outcome(interval, policy.generation, RETRY_STALE)
        except ForeignManagerError as error:
            log.warning("%s; leaving it alone", error, extra=about(policy.namespace, policy.name))
            return Outcome(interval, policy.generation)
        return Outcome(interval, policy.generation, decision.next_check)

    def _complete(
        self, policy: EvictionPolicy, observation: Observation, stored: StoredKnobs
    ) -> Observation:
        """Add what only the operator knows: document, switch, and who else claims the target."""
        conflict = ""
        rival = self._index.older_rival((policy.namespace, policy.name))
        if rival is not None:
            target = policy.spec.target_ref
            conflict = (
                f"policy {rival.name} (of {rival.created}) is older and has the same target, "
                f"{target.kind} {target.name}"
            )
        elif stored.foreign_manager:
            conflict = (
                f"the knob document was changed by field manager {stored.foreign_manager}: it "
                "stays so until the ConfigMap is deleted"
            )
        elsewhere = ""
        if policy.restarts_engines:
            elsewhere = self._restarts.elsewhere((policy.namespace, policy.name))
        return replace(
            observation,
            document=stored.document,
            conflict=conflict,
            fleet=self._fleet,
            restart_elsewhere=elsewhere,
        )

    async def _tell_refusal(self, body: Mapping[str, Any], error: ApiError) -> None:
        """Say on the policy that the document may not be read; an outage cannot be told there."""
        if not error.status:
            return
        message = f"reading the knob document: {error}"
        wanted = unready_status(body, Reason.CLUSTER_UNAVAILABLE, message, self._clock())
        await self._remember(body, wanted)

    async def _remember(self, body: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
        """Write a status, whichever way a tick ends; the conditions' series say what it says."""
        await self._blocking(self._executor.remember, body, wanted)
        metadata = body["metadata"]
        key = (metadata["namespace"], metadata["name"])
        self._metrics.show_conditions(key, wanted["conditions"])

    async def _tell_again(self, policy: EvictionPolicy, memory: Memory) -> None:
        """Events that a predecessor, or a tick that failed, may not have emitted."""
        key = (policy.namespace, policy.name)
        if self._told.get(key) == policy.uid:
            return
        records, now = memory.decisions, self._clock()
        await self._blocking(self._executor.tell_again, policy, records, now)
        self._told[key] = policy.uid

    def _tell(self, policy: EvictionPolicy, decision: Decision, observation: Observation) -> None:
        """Counters, gauges and one log line a transition."""
        key = (policy.namespace, policy.name)
        self._seen.add(key)
        for record in decision.audit:
            self._metrics.decisions.labels(*key, str(record.reason)).inc()
            self._metrics.last_decision.labels(*key, str(record.reason)).set(record.time)
            log.info("%s: %s", record.reason, record.message, extra=_fields(policy, record))
        if decision.memory.regime is not None:
            self._metrics.show_regime(key, str(decision.memory.regime.name))
        self._metrics.quarantined.labels(*key).set(len(decision.memory.quarantine))
        self._metrics.ttft_threshold.labels(*key).set(policy.spec.slo.ttft.threshold)
        self._metrics.show_mode(key, str(_mode(policy, observation.fleet)))
        for condition in decision.conditions:
            if condition.type is ConditionType.SLO_MET:
                self._metrics.show_slo(key, condition.status)
        engines = {(each.pod, each.engine) for each in observation.engines}
        self._metrics.show_engines(key, engines)
        for name, value in readings_of(observation).items():
            self._metrics.show_reading(key, name, value)
        applied = decision.memory.applied
        values = applied.values if applied else None
        self._metrics.show_applied(
            key,
            {
                "xi": values.xi_tokens if values else None,
                "q_hat": values.q_hat_tokens if values else None,
            },
        )

    async def _blocking(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, functools.partial(call, *args, **kwargs))


def _mode(policy: EvictionPolicy, fleet: FleetMode) -> Mode:
    """The mode in effect: the administrator may allow less than the policy asks for."""
    mode = policy.spec.mode
    return Mode.RECOMMEND if fleet.limits(mode) else mode


def _fields(policy: EvictionPolicy, record: Any) -> dict[str, Any]:
    """The log record's structured fields."""
    fields: dict[str, Any] = {"reason": str(record.reason), "decision_id": record.decision_id}
    for name, values in (("from", record.change_from), ("to", record.change_to)):
        if values is not None:
            fields[name] = {"xi_tokens": values.xi_tokens, "q_hat_tokens": values.q_hat_tokens}
            if values.fraction is not None:
                fields[name]["gpu_memory_utilization"] = format_fraction(values.fraction)
    return about(policy.namespace, policy.name, **fields)


def readings_of(observation: Observation) -> dict[str, float | None]:
    """Readings by name; None where there is no value. The TTFT's upper bound may be infinite."""
    ttft = observation.ttft
    readings: dict[str, float | None] = dict.fromkeys(_TTFT)
    if isinstance(ttft, Interval):
        told = (ttft.estimate, ttft.lower, ttft.upper, ttft.requests)
        readings = dict(zip(_TTFT, told, strict=True))
    for name in _READINGS:
        reading = getattr(observation, name)
        readings[name] = reading.value if isinstance(reading, Value) else None
    return readings
