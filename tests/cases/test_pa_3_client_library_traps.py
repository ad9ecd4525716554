"""PA-3: what the client library does of its own accord, and answers it cannot take."""

from __future__ import annotations

import asyncio
import json
import time

import pytest
from evictune.api.observation import Unknown, Value
from evictune.api.reasons import Reason
from evictune.api.sources import SourceDefinition, SourceKind
from evictune.observe.observer import Observer

from tests.support.field_case import NOW, PATIENCE, Scene, case_policy, play, vector
from tests.support.page_server import Answer, serve

KV = "vllm:kv_cache_usage_perc"


def test_the_root_path_is_not_asked() -> None:
    """It answers 404 behind prefixes and gateways, and says nothing about queries."""

    async def scenario(scene: Scene) -> None:
        scene.use_store()
        scene.store.put(KV, "0.88")
        assert (await scene.look()).readings.kv_usage == Value(0.88)
        assert "/" not in {asked.path for asked in scene.server.asked}

    play(scenario)


@pytest.mark.parametrize("result", ["[]", "null"])
def test_an_empty_result_is_unknown(result: str) -> None:
    async def scenario(scene: Scene) -> None:
        scene.use_store()
        body = f'{{"status":"success","data":{{"resultType":"vector","result":{result}}}}}'
        scene.store.fault = Answer(body, content_type="application/json")
        seen = await scene.look()
        assert isinstance(seen.readings.kv_usage, Unknown)
        assert seen.readings.kv_usage.reason is Reason.NO_SERIES

    play(scenario)


def test_a_store_that_never_answers_is_given_up() -> None:
    async def scenario(scene: Scene) -> None:
        scene.use_store(timeout=0.5)
        scene.store.fault = Answer(hang=True)
        reading = (await scene.look()).readings.kv_usage
        assert isinstance(reading, Unknown)
        assert reading.reason is Reason.SOURCE_UNAVAILABLE
        assert "no answer within 0.5 s" in reading.message
        assert len([asked for asked in scene.server.asked if asked.parameters]) == 1

    began = time.monotonic()
    play(scenario)
    assert time.monotonic() - began < 20


def test_a_store_that_never_answers_delays_nobody_else() -> None:
    async def scenario(scene: Scene) -> None:
        scene.store.put(KV, "0.88")
        with serve(lambda asked: Answer(hang=True)) as silent:
            kind, urls = SourceKind.PROMETHEUS, {"default": scene.server.url, "silent": silent.url}
            sources = {
                name: SourceDefinition(name, kind, url=url, timeout=PATIENCE)
                for name, url in urls.items()
            }
            observer = Observer(scene, sources, lambda: scene.now)
            policy = case_policy(metrics={"source": "silent"})
            hanging = asyncio.ensure_future(observer.observe(policy))
            while not silent.asked:
                await asyncio.sleep(0.01)
            assert (await observer.observe(case_policy())).kv_usage == Value(0.88)
            assert not hanging.done()
            hanging.cancel()
            await observer.close()

    play(scenario)


@pytest.mark.parametrize("kind", ["matrix", "scalar", "string", "streams"])
def test_a_result_of_another_type_is_an_error_of_its_own(kind: str) -> None:
    async def scenario(scene: Scene) -> None:
        scene.use_store()
        data = {"resultType": kind, "result": [NOW, "1"]}
        body = json.dumps({"status": "success", "data": data})
        scene.store.fault = Answer(body, content_type="application/json")
        reading = (await scene.look()).readings.kv_usage
        assert isinstance(reading, Unknown)
        assert reading.reason is Reason.SOURCE_UNAVAILABLE
        assert f"answers with a {kind}, not with a vector" in reading.message

    play(scenario)


@pytest.mark.parametrize(
    ("value", "reason"), [("NaN", Reason.NOT_FINITE), ("+Inf", Reason.NOT_FINITE), ("0.93", None)]
)
def test_values_come_as_strings(value: str, reason: Reason | None) -> None:
    async def scenario(scene: Scene) -> None:
        scene.use_store()
        scene.store.put(KV, value)
        reading = (await scene.look()).readings.kv_usage
        if reason is None:
            assert reading == Value(0.93)
        else:
            assert isinstance(reading, Unknown)
            assert reading.reason is reason

    play(scenario)


@pytest.mark.parametrize(
    "element",
    [
        {"metric": {"namespace": "serve-a", "pod": "owl-8b-a"}, "value": [NOW]},
        {"metric": {"namespace": "serve-a", "pod": "owl-8b-a"}, "value": [NOW, "full"]},
        {"metric": {"namespace": "serve-a", "pod": "owl-8b-a"}, "histogram": [NOW, {}]},
        {"metric": {"namespace": "serve-a", "pod": "owl-8b-a", "le": "many"}, "value": [NOW, "1"]},
        ["serve-a"],
    ],
)
def test_an_element_that_is_none_is_unknown_not_skipped(element: object) -> None:
    async def scenario(scene: Scene) -> None:
        scene.use_store()
        scene.store.fault = vector([element])  # type: ignore[list-item]
        reading = (await scene.look()).readings.kv_usage
        assert isinstance(reading, Unknown)
        assert "cannot be read" in reading.message

    play(scenario)
