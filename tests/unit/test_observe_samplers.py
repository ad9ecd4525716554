"""Samplers: few queries for many policies, one round at a time, and faults kept to their source."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote_plus

import pytest
from evictune.api.observation import Unknown, Value
from evictune.api.reasons import Reason
from evictune.api.sources import SourceDefinition, SourceKind
from evictune.observe.dialects import Engine, Measure
from evictune.observe.pool import Pooling
from evictune.observe.promql import query
from evictune.observe.samplers import PrometheusSource
from evictune.observe.snapshot import PodKey, Snapshot, SourceError
from evictune.observe.target import EnginePod

from tests.support.page_server import Answer, Asked, PageServer, serve

WINDOW = 60.0
ROUND = len(Measure)


def engine_pod(name: str = "owl-0", namespace: str = "serve-a") -> EnginePod:
    return EnginePod(PodKey(namespace, name), Engine.VLLM, "http://unused", "http://unused")


def answer(*elements: tuple[dict[str, str], str], kind: str = "vector") -> Answer:
    result: list[Any] = [{"metric": labels, "value": [1.0, value]} for labels, value in elements]
    body = {"status": "success", "data": {"resultType": kind, "result": result}}
    return Answer(json.dumps(body), content_type="application/json")


def usage_only(asked: Asked) -> Answer:
    """A store that holds the KV usage of one pod in every namespace asked for."""
    text = asked.parameters["query"]
    if "kv_cache_usage_perc" not in text:
        return answer()
    namespaces = re.search(r'namespace=~"([^"]+)"', text)
    assert namespaces
    labels = [{"namespace": n, "pod": "owl-0", "engine": "0"} for n in namespaces[1].split("|")]
    return answer(*((of, "0.5") for of in labels))


class Bench:
    """A source in front of a server, on a clock that the test turns."""

    def __init__(self, server: PageServer, timeout: float = 10.0) -> None:
        self.now = 1000.0
        self.server = server
        definition = SourceDefinition(
            "default", SourceKind.PROMETHEUS, url=server.url, timeout=timeout
        )
        self.source = PrometheusSource(definition, lambda: self.now)

    async def ask(self, namespace: str = "serve-a", age: float = 15.0) -> Snapshot:
        return await self.source.snapshot([engine_pod(namespace=namespace)], WINDOW, age)


def run(scenario: Callable[[Bench], Any], respond: Callable[[Asked], Answer] = usage_only) -> Any:
    async def main(server: PageServer) -> Any:
        bench = Bench(server)
        try:
            return await scenario(bench)
        finally:
            await bench.source.close()

    with serve(respond) as server:
        return asyncio.run(main(server))


def test_many_policies_cost_one_round_of_queries() -> None:
    async def scenario(bench: Bench) -> None:
        snapshots = await asyncio.gather(*(bench.ask() for _ in range(20)))
        assert len(bench.server.asked) == ROUND
        assert all(snapshot is snapshots[0] for snapshot in snapshots)
        bench.now += 10
        await bench.ask()
        assert len(bench.server.asked) == ROUND
        bench.now += 10
        await bench.ask()
        assert len(bench.server.asked) == 2 * ROUND

    run(scenario)


def test_a_round_covers_all_namespaces_and_costs_no_more() -> None:
    async def scenario(bench: Bench) -> None:
        for namespace in ("serve-a", "serve-b", "serve-c"):
            await bench.ask(namespace)
        asked = len(bench.server.asked)
        bench.now += 20
        snapshots = [await bench.ask(name) for name in ("serve-a", "serve-b", "serve-c")]
        assert len(bench.server.asked) == asked + ROUND
        assert {rank.pod.namespace for rank in snapshots[2].values[Measure.KV_USAGE]} == {
            "serve-a",
            "serve-b",
            "serve-c",
        }

    run(scenario)


def test_a_source_that_hangs_holds_one_thread_and_one_request() -> None:
    async def scenario(bench: Bench) -> None:
        bench = Bench(bench.server, timeout=0.3)
        began = time.monotonic()
        for _ in range(3):
            with pytest.raises(SourceError) as caught:
                await bench.ask(age=0.0)
            assert caught.value.unknown.reason is Reason.SOURCE_UNAVAILABLE
            assert "0.3 s" in caught.value.unknown.message
            bench.now += 30
        assert time.monotonic() - began < 3
        waiting = [t for t in threading.enumerate() if t.name.startswith("source-default")]
        assert len(waiting) <= 4
        await bench.source.close()

    run(scenario, lambda asked: Answer(hang=True))


def test_a_hung_source_does_not_delay_another() -> None:
    async def scenario(hung: Bench) -> None:
        hanging = asyncio.ensure_future(hung.ask())
        await asyncio.sleep(0.1)
        with serve(usage_only) as server:
            healthy = Bench(server)
            await healthy.ask()
            await healthy.source.close()
        assert len(hung.server.asked) == 1
        assert not hanging.done()
        hanging.cancel()

    run(scenario, lambda asked: Answer(hang=True))


def test_a_refusal_ends_the_round_and_is_remembered() -> None:
    async def scenario(bench: Bench) -> None:
        for _ in range(5):
            with pytest.raises(SourceError, match="no org id"):
                await bench.ask()
        assert len(bench.server.asked) == 1
        bench.server.respond = usage_only
        bench.now += 30
        await bench.ask()

    run(scenario, lambda asked: Answer("no org id", status=401))


def pooling(snapshot: Snapshot) -> Pooling:
    return Pooling(snapshot, [engine_pod().key], Engine.VLLM, "default")


def test_one_query_that_fails_leaves_the_other_readings() -> None:
    def respond(asked: Asked) -> Answer:
        if "num_preemptions" in asked.parameters["query"]:
            return answer(kind="matrix")
        return usage_only(asked)

    async def scenario(bench: Bench) -> Pooling:
        return pooling(await bench.ask())

    view = run(scenario, respond)
    assert view.kv_usage() == Value(0.5)
    preemptions = view.preemptions()
    assert isinstance(preemptions, Unknown)
    assert "matrix" in preemptions.message


@pytest.mark.parametrize(
    ("value", "reason"), [("NaN", Reason.NOT_FINITE), ("+Inf", Reason.NOT_FINITE)]
)
def test_values_that_are_no_numbers_are_unknown(value: str, reason: Reason) -> None:
    labels = {"namespace": "serve-a", "pod": "owl-0", "engine": "0"}

    async def scenario(bench: Bench) -> Pooling:
        return pooling(await bench.ask())

    reading = run(scenario, lambda asked: answer((labels, value))).total(Measure.RUNNING)
    assert isinstance(reading, Unknown)
    assert reading.reason is reason


def test_an_element_that_is_none_is_told_of_its_query_alone() -> None:
    async def scenario(bench: Bench) -> Pooling:
        return pooling(await bench.ask())

    element = '{"metric": "x", "value": [1, "1"]}'
    body = f'{{"status":"success","data":{{"resultType":"vector","result":[{element}]}}}}'
    reading = run(scenario, lambda asked: Answer(body)).total(Measure.RUNNING)
    assert isinstance(reading, Unknown)
    assert "cannot be read" in reading.message


def test_empty_results_are_unknown_not_zero() -> None:
    async def scenario(bench: Bench) -> Pooling:
        return pooling(await bench.ask())

    view = run(scenario, lambda asked: answer())
    for reading in (view.kv_usage(), view.preemptions(), view.hit_ratio()):
        assert isinstance(reading, Unknown)
        assert reading.reason is Reason.NO_SERIES


def test_a_pod_with_gauges_but_no_increase_is_warming_up() -> None:
    labels = {"namespace": "serve-a", "pod": "owl-0", "engine": "0"}

    def respond(asked: Asked) -> Answer:
        gauges = "num_requests" in asked.parameters["query"]
        return answer((labels, "1")) if gauges else answer()

    async def scenario(bench: Bench) -> Pooling:
        return pooling(await bench.ask())

    reading = run(scenario, respond).preemptions()
    assert isinstance(reading, Unknown)
    assert reading.reason is Reason.WARMING_UP


def test_the_query_prefers_the_new_name_and_says_which_it_used() -> None:
    text = query(Measure.KV_USAGE, ["b", "a-1"], 60.0)
    new, old = text.index("kv_cache_usage_perc"), text.index("gpu_cache_usage_perc")
    assert new < old
    assert " or on (namespace, pod, engine, dp_rank) " in text
    assert '"series", "vllm:kv_cache_usage_perc", "", ""' in text
    assert 'namespace=~"a-1|b"' in text


@pytest.mark.parametrize("measure", Measure)
def test_however_many_namespaces_there_are_a_request_s_line_stays_short(measure: Measure) -> None:
    few = [f"team-{i:02}-{'x' * 15}" for i in range(20)]
    many = [f"team-{i:04}" for i in range(500)]
    assert f'namespace=~"{"|".join(few)}"' in query(measure, few, 60.0)
    for namespaces in (few, many):
        assert len(quote_plus(query(measure, namespaces, 60.0))) < 8000
    assert 'namespace=~".+"' in query(measure, many, 60.0)


def test_a_fraction_of_a_second_is_kept_in_the_window() -> None:
    assert "[1500ms]" in query(Measure.PREEMPTIONS, ["a"], 1.5)
