"""The whole observer over HTTP: a real engine's pages, the plugin's, and what goes wrong."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from evictune.api.knobs import KnobValues
from evictune.api.observation import Idle, Interval, Observation, TargetState, Unknown, Value
from evictune.api.parse import parse_policy
from evictune.api.policy import EvictionPolicy
from evictune.api.reasons import Reason
from evictune.api.sources import SourceDefinition, SourceKind
from evictune.observe import EnginePod, Observer, Target
from evictune.observe.dialects import Engine
from evictune.observe.snapshot import PodKey

from tests.support.page_server import Answer, Asked, PageServer, serve

CAPTURES = Path(__file__).parents[1] / "data/exposition"
PLUGIN = """\
evictune_policy_info{policy="t-lru",xi_tokens="512",q_hat_tokens="200",revision="7",engine="0"} 1
evictune_engine_eligible{engine="0",reason=""} 1
evictune_evicted_blocks_total{engine="0",region="lru"} 3
evictune_evicted_blocks_total{engine="0",region="tel-safe"} 40
evictune_evicted_blocks_total{engine="0",region="protected"} 0
"""
DIRECT = {"default": SourceDefinition("default", SourceKind.DIRECT, timeout=2.0)}


def capture(moment: str, page: str = "engine", of: str = "vllm-0.32.0") -> str:
    return (CAPTURES / of / f"{page}-{moment}.txt").read_text("utf-8")


def counted(moment: str, sample: str, page: str = "engine") -> float:
    """A number as it stands on a captured page; `sample` matches the line up to it."""
    (found,) = re.findall(rf"^{sample}[^}}]*\}} (\S+)$", capture(moment, page), re.MULTILINE)
    return float(found)


def policy(window: str = "1m", source: str = "default") -> EvictionPolicy:
    ttft = {"quantile": "0.9", "threshold": "50ms", "window": window, "minRequests": 5}
    metadata = {
        "namespace": "serve-a",
        "name": "owl",
        "uid": "p",
        "generation": 1,
        "resourceVersion": "1",
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    spec = {
        "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "owl"},
        "slo": {"ttft": ttft},
        "metrics": {"source": source},
    }
    return parse_policy({"metadata": metadata, "spec": spec})


class Fleet:
    """Pods that all live at one server, told apart by their paths; a clock that the test turns."""

    def __init__(self, server: PageServer, *names: str) -> None:
        self.now = 1000.0
        self.server = server
        self.pages: dict[str, Answer] = {}
        self.problem: Reason | None = None
        self.generation = 1
        self.names = names
        server.respond = self._respond
        for name in names:
            self.engine(name, capture("start"))
            self.plugin(name, PLUGIN)
        self.observer = Observer(self, DIRECT, lambda: self.now)

    def engine(self, pod: str, text: str, **fields: Any) -> None:
        self.pages[f"/{pod}/engine"] = Answer(text, **fields)

    def plugin(self, pod: str, text: str, **fields: Any) -> None:
        self.pages[f"/{pod}/plugin"] = Answer(text, **fields)

    async def target(self, policy: EvictionPolicy) -> Target:
        if self.problem is not None:
            return Target(TargetState(found=False, problem=self.problem, message="gone"))
        pods = tuple(
            EnginePod(
                PodKey("serve-a", name),
                Engine.VLLM,
                f"{self.server.url}/{name}/engine",
                f"{self.server.url}/{name}/plugin",
                uid=f"{name}-{self.generation}",
            )
            for name in self.names
        )
        return Target(TargetState(found=True, desired_replicas=len(pods)), pods)

    async def observe(self, after: float = 0.0, **changes: Any) -> Observation:
        self.now += after
        return await self.observer.observe(policy(**changes))

    def _respond(self, asked: Asked) -> Answer:
        return self.pages.get(asked.path, Answer(status=404))


Scenario = Callable[[Fleet], Awaitable[None]]


def run(scenario: Scenario, *names: str) -> None:
    async def main(server: PageServer) -> None:
        fleet = Fleet(server, *(names or ("owl-0",)))
        try:
            await scenario(fleet)
        finally:
            await fleet.observer.close()

    with serve(lambda asked: Answer(status=404)) as server:
        asyncio.run(main(server))


def unknown(reading: object) -> Unknown:
    assert isinstance(reading, Unknown), reading
    return reading


def test_a_real_engine_s_pages_give_every_reading() -> None:
    async def scenario(fleet: Fleet) -> None:
        await fleet.observe()
        fleet.engine("owl-0", capture("loaded"))
        seen = await fleet.observe(after=30.0)
        queries = counted("loaded", "vllm:prefix_cache_queries_total")
        hits = counted("loaded", "vllm:prefix_cache_hits_total")
        requests = counted("loaded", "vllm:request_prompt_tokens_count")
        computed = counted("loaded", "vllm:request_prefill_kv_computed_tokens_sum")
        assert 0 < hits < queries
        assert seen.hit_ratio == Value(hits / queries)
        assert seen.uncached_tokens == Value((queries - hits) / 30)
        assert seen.prompt_tokens_per_request == Value(queries / requests)
        assert seen.preemptions == Value(0)
        assert seen.running == seen.waiting == seen.kv_usage == Value(0)
        prefill = counted("loaded", "vllm:request_prefill_time_seconds_sum")
        queued = counted("loaded", "vllm:request_queue_time_seconds_sum")
        assert seen.prefill_rate == Value(computed / prefill)
        assert seen.queue_time == Value(queued / requests)
        assert seen.metric_names["kv_usage"] == "vllm:kv_cache_usage_perc"
        (engine,) = seen.engines
        assert (engine.pod, engine.engine) == ("owl-0", "0")
        assert (engine.block_tokens, engine.capacity_tokens) == (32, 80 * 32)
        assert engine.kv_usage == Value(0)

    run(scenario)


def test_a_real_engine_s_quantile_lies_in_the_bucket_that_holds_it() -> None:
    async def scenario(fleet: Fleet) -> None:
        await fleet.observe()
        fleet.engine("owl-0", capture("loaded"))
        ttft = (await fleet.observe(after=30.0)).ttft
        assert isinstance(ttft, Interval)
        requests = counted("loaded", "vllm:time_to_first_token_seconds_count")
        assert ttft.requests == requests
        bucket = "vllm:time_to_first_token_seconds_bucket.*le="
        assert counted("loaded", f'{bucket}"{ttft.upper}"') >= 0.9 * requests
        assert counted("loaded", f'{bucket}"{ttft.lower}"') < 0.9 * requests

    run(scenario)


def test_the_real_plugin_s_pages_tell_what_is_in_force_and_what_was_evicted() -> None:
    async def scenario(fleet: Fleet) -> None:
        fleet.plugin("owl-0", capture("start", "plugin"))
        (stock,) = (await fleet.observe()).engines
        assert (stock.in_force, stock.revision, stock.eligible) == (KnobValues(None), 0, True)
        fleet.plugin("owl-0", capture("loaded", "plugin"))
        (tlru,) = (await fleet.observe(after=30.0)).engines
        assert (tlru.in_force, tlru.revision, tlru.eligible) == (KnobValues(128, 64), 7, True)
        assert tlru.refused_document == ""
        fleet.plugin("owl-0", capture("later", "plugin"))
        seen = await fleet.observe(after=20.0)
        (refusing,) = seen.engines
        assert (refusing.in_force, refusing.revision) == (KnobValues(128, 64), 7)
        assert refusing.refused_document.startswith("Malformed: ")
        for region, reading in (
            ("lru", seen.evicted_lru),
            ("tel-safe", seen.evicted_tel_safe),
            ("protected", seen.evicted_protected),
        ):
            sample = f'evictune_evicted_blocks_total.*region="{region}"'
            assert reading == Value(counted("later", sample, "plugin"))
        assert isinstance(seen.evicted_protected, Value)
        assert seen.evicted_protected.value > 0

    run(scenario)


def test_the_ranks_of_a_real_data_parallel_engine_are_told_apart_and_pooled() -> None:
    pair = "vllm-0.32.0-ranks-2"

    def grown(sample: str, page: str = "engine") -> list[float]:
        """What each rank's counter grew by, read off the captured pages."""
        text = [capture(moment, page, pair) for moment in ("loaded", "later")]
        pattern = rf"^{sample}[^}}]*\}} (\S+)$"
        before, after = ([float(x) for x in re.findall(pattern, of, re.MULTILINE)] for of in text)
        assert len(after) == 2
        return [now - then for then, now in zip(before, after, strict=True)]

    async def scenario(fleet: Fleet) -> None:
        for moment in ("loaded", "later"):
            fleet.engine("owl-0", capture(moment, of=pair))
            fleet.plugin("owl-0", capture(moment, "plugin", pair))
            seen = await fleet.observe(after=30.0)
        assert [(engine.pod, engine.engine) for engine in seen.engines] == [
            ("owl-0", "0"),
            ("owl-0", "1"),
        ]
        for engine in seen.engines:
            assert (engine.in_force, engine.revision) == (KnobValues(128, 64), 7)
            assert engine.capacity_tokens == 80 * 32
        hits, queries = (grown(f"vllm:prefix_cache_{what}_total") for what in ("hits", "queries"))
        assert seen.hit_ratio == Value(sum(hits) / sum(queries))
        assert seen.uncached_tokens == Value((sum(queries) - sum(hits)) / 30)
        evicted = grown('evictune_evicted_blocks_total.*region="protected"', "plugin")
        assert seen.evicted_protected == Value(sum(evicted))

    run(scenario)


def test_the_first_look_has_gauges_and_no_rates() -> None:
    async def scenario(fleet: Fleet) -> None:
        seen = await fleet.observe()
        assert seen.kv_usage == Value(0)
        for reading in (seen.ttft, seen.preemptions, seen.hit_ratio, seen.evicted_lru):
            assert unknown(reading).reason is Reason.WARMING_UP

    run(scenario)


def test_an_engine_without_traffic_is_idle() -> None:
    async def scenario(fleet: Fleet) -> None:
        fleet.engine("owl-0", capture("loaded"))
        await fleet.observe()
        seen = await fleet.observe(after=30.0)
        assert seen.ttft == seen.hit_ratio == seen.queue_time == seen.prefill_rate == Idle()
        assert seen.uncached_tokens == Value(0)

    run(scenario)


def test_a_window_shorter_than_the_interval_says_so() -> None:
    async def scenario(fleet: Fleet) -> None:
        await fleet.observe(window="12s")
        seen = await fleet.observe(after=30.0, window="12s")
        reading = unknown(seen.ttft)
        assert reading.reason is Reason.WARMING_UP
        assert "slo.ttft.window" in reading.message
        again = await fleet.observe(after=2.0, window="12s")
        assert again.ttft == Idle()

    run(scenario)


def test_a_restart_counts_from_zero() -> None:
    async def scenario(fleet: Fleet) -> None:
        fleet.engine("owl-0", capture("later"))
        await fleet.observe()
        fleet.engine("owl-0", capture("loaded"))
        seen = await fleet.observe(after=30.0)
        assert isinstance(seen.ttft, Interval)
        assert seen.ttft.requests == counted("loaded", "vllm:time_to_first_token_seconds_count")

    run(scenario)


def test_a_new_pod_of_the_old_name_is_looked_at_afresh() -> None:
    async def scenario(fleet: Fleet) -> None:
        await fleet.observe()
        fleet.generation = 2
        fleet.engine("owl-0", capture("loaded"))
        seen = await fleet.observe(after=30.0)
        for reading in (seen.ttft, seen.uncached_tokens, seen.evicted_lru):
            assert unknown(reading).reason is Reason.WARMING_UP

    run(scenario)


def test_a_rank_that_restarts_alone_does_not_count_the_other_rank_anew() -> None:
    def page(first: int, second: int) -> str:
        line = 'evictune_evicted_blocks_total{{engine="{}",region="protected"}} {}\n'
        return PLUGIN + line.format("1", first) + line.format("2", second)

    async def scenario(fleet: Fleet) -> None:
        fleet.plugin("owl-0", page(500, 100))
        await fleet.observe()
        fleet.plugin("owl-0", page(510, 4))
        seen = await fleet.observe(after=30.0)
        assert seen.evicted_protected == Value(10 + 4)

    run(scenario)


def test_pods_are_pooled_and_one_without_pages_makes_coverage_incomplete() -> None:
    async def scenario(fleet: Fleet) -> None:
        await fleet.observe()
        for name in fleet.names:
            fleet.engine(name, capture("loaded"))
        seen = await fleet.observe(after=30.0)
        assert isinstance(seen.ttft, Interval)
        assert seen.ttft.requests == 2 * counted("loaded", "vllm:time_to_first_token_seconds_count")
        fleet.engine("owl-1", "", status=503)
        reading = unknown((await fleet.observe(after=1.0)).ttft)
        assert reading.reason is Reason.INCOMPLETE_COVERAGE
        assert "owl-1" in reading.message
        assert "status 503" in reading.message

    run(scenario, "owl-0", "owl-1")


@pytest.mark.parametrize(
    ("page", "words"),
    [
        (Answer(hang=True), "no answer within"),
        (Answer(status=404), "status 404"),
        (Answer(status=302, headers={"Location": "http://127.0.0.1:1/"}), "status 302"),
        (Answer("<html><body>route</body></html>"), "not the Prometheus text format"),
    ],
)
def test_pages_that_are_none(page: Answer, words: str) -> None:
    async def scenario(fleet: Fleet) -> None:
        fleet.pages["/owl-0/engine"] = page
        began = time.monotonic()
        seen = await fleet.observe()
        assert time.monotonic() - began < 8
        for reading in (seen.ttft, seen.kv_usage, seen.preemptions, seen.uncached_tokens):
            assert unknown(reading).reason is Reason.SOURCE_UNAVAILABLE
            assert words in unknown(reading).message
        assert seen.engines[0].in_force == KnobValues(512, 200)

    run(scenario)


def test_without_the_plugin_nothing_is_said_to_be_in_force() -> None:
    async def scenario(fleet: Fleet) -> None:
        del fleet.pages["/owl-0/plugin"]
        await fleet.observe()
        seen = await fleet.observe(after=30.0)
        (engine,) = seen.engines
        assert engine.in_force is engine.revision is engine.eligible is None
        assert unknown(seen.evicted_protected).reason is Reason.NO_SERIES
        assert seen.uncached_tokens == Value(0)

    run(scenario)


def test_stock_lru_refusals_and_ranks_as_the_plugin_tells_them() -> None:
    stock = 'policy="lru",xi_tokens="",q_hat_tokens="",revision="0"'
    page = (
        f'evictune_policy_info{{{stock},engine="0"}} 1\n'
        f'evictune_policy_info{{{stock},engine="1"}} 1\n'
        'evictune_engine_eligible{engine="0",reason=""} 1\n'
        'evictune_engine_eligible{engine="1",reason="PrefixCachingDisabled"} 0\n'
        'evictune_refused_document_info{engine="0",reason="OutOfRange",message="xiTokens: -1"} 1\n'
    )

    async def scenario(fleet: Fleet) -> None:
        fleet.plugin("owl-0", page)
        first, second = (await fleet.observe()).engines
        assert first.in_force == second.in_force == KnobValues(None)
        assert (first.revision, first.eligible) == (0, True)
        assert first.refused_document == "OutOfRange: xiTokens: -1"
        assert (second.engine, second.eligible) == ("1", False)
        assert second.ineligible_reason == "PrefixCachingDisabled"

    run(scenario)


def test_a_broken_plugin_page_is_no_acknowledgement() -> None:
    async def scenario(fleet: Fleet) -> None:
        fleet.plugin("owl-0", PLUGIN.replace('revision="7"', 'revision="x"'))
        seen = await fleet.observe()
        assert seen.engines[0].revision is None
        assert "cannot be read" in unknown(seen.evicted_lru).message

    run(scenario)


def test_the_plugin_is_read_even_when_the_source_is_not_defined() -> None:
    async def scenario(fleet: Fleet) -> None:
        seen = await fleet.observe(source="wren")
        reading = unknown(seen.ttft)
        assert reading.reason is Reason.SOURCE_UNDEFINED
        assert "'wren' is not defined; there are: default" in reading.message
        assert seen.engines[0].revision == 7

    run(scenario)


def test_a_target_that_is_gone_makes_every_reading_unknown() -> None:
    async def scenario(fleet: Fleet) -> None:
        fleet.problem = Reason.TARGET_MISSING
        seen = await fleet.observe()
        assert seen.engines == ()
        assert not seen.target.found
        for name in ("ttft", "kv_usage", "running", "evicted_lru", "prompt_tokens_per_request"):
            assert unknown(getattr(seen, name)).reason is Reason.TARGET_MISSING

    run(scenario)


def test_a_frozen_gauge_is_doubted_on_the_engine_too() -> None:
    async def scenario(fleet: Fleet) -> None:
        page = re.sub(r"(vllm:kv_cache_usage_perc\{[^}]*\}) \S+", r"\1 0.94", capture("loaded"))
        fleet.engine("owl-0", page)
        seen = await fleet.observe()
        assert unknown(seen.kv_usage).reason is Reason.STALE_GAUGE
        assert unknown(seen.engines[0].kv_usage).reason is Reason.STALE_GAUGE

    run(scenario)
