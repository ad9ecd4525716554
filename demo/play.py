"""One arm: the load is played while the engine, and the policy if there is one, are watched."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import aiohttp
from evictune.api.decision import Phase
from evictune.api.reasons import Reason
from evictune.api.times import parse_time
from prometheus_client.parser import text_string_to_metric_families

from demo.constants import LOAD, OBJECTIVE
from demo.load import Client, Kind, LoadError, Request
from demo.manifests import Target
from demo.narrate import BLUE, BOLD, GREEN, RED, YELLOW, Narrator
from demo.record import Arm, Outcome, Sample, Step, numbers
from demo.stage import Engine, Stage
from localcluster.processes import Program

WATCH_SECONDS = 1.0
RECENT_REQUESTS = 60
REQUEST_SECONDS = 120.0
ACKNOWLEDGED_SECONDS = 30.0

COLOURS: dict[str, str] = {
    Reason.SLO_VIOLATED: RED,
    Reason.SLO_MET: GREEN,
    Reason.INTENDED: YELLOW,
    Reason.ACKNOWLEDGED: BLUE,
    Reason.KEPT: GREEN,
    Reason.REVERTED: YELLOW,
    Reason.EXHAUSTED: RED,
}


class Play:
    """Plays the load to one engine. With an operator there is a policy to tell of."""

    def __init__(
        self,
        arm: Arm,
        stage: Stage,
        engine: Engine,
        narrator: Narrator,
        operator: Program | None = None,
    ) -> None:
        self._arm = arm
        self._stage = stage
        self._engine = engine
        self._narrator = narrator
        self._operator = operator
        self._said: set[tuple[str, ...]] = set()
        self._slo_reason = ""
        self._last_word_said = False

    async def run(self, requests: Sequence[Request], encore: Sequence[Request] = ()) -> None:
        """Send the requests one by one, and of the encore what the search needs.

        Raises LoadError.
        """
        timeout = aiohttp.ClientTimeout(total=REQUEST_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            watchers = [asyncio.create_task(self._repeat(self._sample, session))]
            if self._operator:
                watchers.append(asyncio.create_task(self._repeat(self._listen, session)))
            try:
                await self._send(Client(session, self._engine.url), requests, encore, watchers)
            finally:
                for watcher in watchers:
                    watcher.cancel()
                await asyncio.gather(*watchers, return_exceptions=True)
            await self._sample(session)
            if self._operator:
                await self._until_acknowledged(session)
            self._arm.computed_tokens = await self._computed_tokens(session)
            self._arm.steps.sort(key=lambda step: step.time)

    async def _send(
        self,
        client: Client,
        requests: Sequence[Request],
        encore: Sequence[Request],
        watchers: Sequence[asyncio.Task[None]],
    ) -> None:
        phase = ""
        for request in (*requests, *encore):
            if request.index >= len(requests) and self._last_word_said:
                return
            if request.phase != phase:
                phase = request.phase
                self._narrator.say(f"The load: {LOAD.titles[phase]}", BOLD)
            answer = await client.ask(request.prompt, request.output_tokens)
            self._arm.outcomes.append(Outcome(request, answer))
            self._narrator.progress(self._how_far(len(requests), len(encore)))
            for watcher in watchers:
                if watcher.done():
                    watcher.result()

    def _how_far(self, shared: int, encore: int) -> str:
        done = len(self._arm.outcomes)
        total = f"{shared}" if done <= shared else f"at most {shared + encore}"
        recent = numbers(self._arm.outcomes[-RECENT_REQUESTS:])
        return (
            f"request {done} of {total}; last {recent.requests}: "
            f"TTFT p50 {recent.ttft_p50 * 1000:.0f} ms, p95 {recent.ttft_p95 * 1000:.0f} ms, "
            f"p99 {recent.ttft_p99 * 1000:.0f} ms; uncached p99 {recent.uncached_p99:,} tokens"
        )

    async def _repeat(self, watch: Any, session: aiohttp.ClientSession) -> None:
        while True:
            await watch(session)
            await asyncio.sleep(WATCH_SECONDS)

    async def _sample(self, session: aiohttp.ClientSession) -> None:
        """Ask the engine itself what is in force."""
        async with session.get(self._engine.plugin_url) as reply:
            page = await reply.text()
        for xi_tokens, revision in in_force(page):
            self._arm.samples.append(Sample(time.time(), xi_tokens, revision))

    async def _until_acknowledged(self, session: aiohttp.ClientSession) -> None:
        """The load may end while the operator has yet to notice what the engine has in force."""
        deadline = time.monotonic() + ACKNOWLEDGED_SECONDS
        while True:
            status = await self._listen(session)
            await self._sample(session)
            in_force = self._arm.samples[-1].revision
            self._arm.acknowledged_revision = acknowledged_revision(status)
            if self._arm.acknowledged_revision == in_force:
                return
            if time.monotonic() > deadline:
                raise LoadError(
                    f"the engine has revision {in_force} in force, and after "
                    f"{ACKNOWLEDGED_SECONDS:.0f} s the policy's status still says "
                    f"{self._arm.acknowledged_revision}"
                )
            await asyncio.sleep(WATCH_SECONDS)

    async def _computed_tokens(self, session: aiohttp.ClientSession) -> int:
        """The engine's own count of prompt tokens that it had to compute, since it started."""
        async with session.get(f"{self._engine.url}/metrics") as reply:
            page = await reply.text()
        return round(
            sum(
                sample.value
                for family in text_string_to_metric_families(page)
                for sample in family.samples
                if sample.name == "vllm:prompt_tokens_by_source_total"
                and sample.labels["source"] == "local_compute"
            )
        )

    async def _listen(self, _: aiohttp.ClientSession) -> dict[str, Any]:
        """Tell what is new in the policy's status, and return it."""
        if self._operator:
            self._operator.check()
        body = await asyncio.to_thread(self._stage.policy)
        status: dict[str, Any] = body.get("status") or {}
        self._last_word_said = is_last_word(status)
        for condition in status.get("conditions", ()):
            told = condition["type"] == "SLOMet" and condition["status"] != "Unknown"
            # Violated, then out of reach: not met either way, but not the same.
            if told and condition["reason"] != self._slo_reason:
                self._slo_reason = condition["reason"]
                self._tell(time.time(), condition["reason"], condition["message"])
        for decision in status.get("decisions", ()):
            key = (decision["decisionID"], decision["time"], decision["reason"])
            if key not in self._said:
                self._said.add(key)
                self._tell(parse_time(decision["time"]), decision["reason"], decision["message"])
        return status

    def _tell(self, when: float, reason: str, message: str) -> None:
        colour = COLOURS.get(reason, "")
        self._narrator.say(f"{reason}: {message}", colour)
        if reason == Reason.ACKNOWLEDGED:
            unchanged = self._same_process()
            self._narrator.say(unchanged, colour)
            message += f" {unchanged}"
        self._arm.steps.append(Step(min(when, time.time()), reason, message))

    def _same_process(self) -> str:
        now = self._stage.find_engine()
        if now != self._engine:
            raise LoadError(f"the engine was restarted: {self._engine} became {now}")
        return (
            f"No restart: pod {now.pod}, process {now.process}, {now.restarts} restarts, as before."
        )


def acknowledged_revision(status: Mapping[str, Any]) -> int:
    """The newest revision that, by a policy's status, all engines have in force; 0: none."""
    pending = status.get("pending") or {}
    if pending.get("phase") == Phase.SETTLING:
        return int(pending["revision"])
    return int((status.get("applied") or {}).get("revision", 0))


def is_last_word(status: Mapping[str, Any]) -> bool:
    """Whether a policy's status says that the search is over and the target out of reach."""
    reasons = [condition["reason"] for condition in status.get("conditions", ())]
    return Reason.EXHAUSTED in reasons and not status.get("pending")


def in_force(page: str) -> Iterator[tuple[int | None, int]]:
    """(xi_tokens, revision) of each engine on the plugin's metrics page."""
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            if sample.name == "evictune_policy_info" and sample.value == 1:
                xi = sample.labels["xi_tokens"]
                yield int(xi) if xi else None, int(sample.labels["revision"])


def measured_target(arm: Arm) -> Target:
    """The policy's figures from the first arm's own requests; see Objective."""
    counted = [outcome for outcome in arm.outcomes if outcome.request.counted]
    short, turn = _Typical.of(counted, Kind.ONE_SHOT), _Typical.of(counted, Kind.TURN)
    slope = (turn.ttft - short.ttft) / (turn.uncached_tokens - short.uncached_tokens)
    threshold = short.ttft + slope * (OBJECTIVE.threshold_tokens - short.uncached_tokens)
    request = (turn.duration + LOAD.one_shots * short.duration) / (1 + LOAD.one_shots)
    return Target(
        threshold=max(round(threshold / OBJECTIVE.threshold_step), 1) * OBJECTIVE.threshold_step,
        window=float(math.ceil(OBJECTIVE.window_requests * request)),
        settle=float(math.ceil(OBJECTIVE.settle_requests * request)),
    )


@dataclass(frozen=True)
class _Typical:
    """Medians over the requests of one kind; seconds."""

    uncached_tokens: float
    ttft: float
    duration: float

    @classmethod
    def of(cls, outcomes: Sequence[Outcome], kind: Kind) -> _Typical:
        answers = [outcome.answer for outcome in outcomes if outcome.request.kind is kind]
        return cls(
            median(answer.uncached_tokens for answer in answers),
            median(answer.ttft for answer in answers),
            median(answer.duration for answer in answers),
        )
