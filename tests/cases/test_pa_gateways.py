"""Of PA's kind: Thanos, Mimir and other gateways in front of several stores."""

from __future__ import annotations

import pytest
from evictune.api.observation import Unknown, Value
from evictune.api.reasons import Reason
from evictune.api.sources import PodLabels

from tests.support.field_case import Scene, play, vector
from tests.support.page_server import Answer

KV = "vllm:kv_cache_usage_perc"
PARTIAL = "No StoreAPIs matched for this query: receive-1: deadline exceeded"


def test_a_partial_answer_is_no_answer() -> None:
    """What is missing of it may be pods, or a part of the window: neither can be seen from it."""

    async def scenario(scene: Scene) -> None:
        scene.use_store()
        scene.store.put(KV, "0.40")
        whole = scene.store.vectors[KV]
        scene.store.fault = vector(whole, warnings=[PARTIAL])
        seen = await scene.look()
        reading = seen.readings.kv_usage
        assert isinstance(reading, Unknown)
        assert reading.reason is Reason.SOURCE_UNAVAILABLE
        assert "answers in part only" in reading.message
        assert "receive-1: deadline exceeded" in reading.message
        assert not seen.acts
        scene.store.fault = None
        assert (await scene.look(after=30)).readings.kv_usage == Value(0.4)

    play(scenario)


def test_remarks_on_style_are_not_taken_for_warnings() -> None:
    async def scenario(scene: Scene) -> None:
        scene.use_store()
        scene.store.put(KV, "0.40")
        note = "PromQL info: metric might not be a counter"
        scene.store.fault = vector(scene.store.vectors[KV], infos=[note], warnings=[])
        assert (await scene.look()).readings.kv_usage == Value(0.4)

    play(scenario)


def test_parameters_of_the_gateway_are_added_to_every_query() -> None:
    async def scenario(scene: Scene) -> None:
        parameters = {"partial_response": "false", "dedup": "true"}
        scene.use_store(parameters=parameters)
        await scene.look()
        asked = [each.parameters for each in scene.server.asked if "query" in each.parameters]
        assert asked
        assert all(parameters.items() <= each.items() for each in asked)

    play(scenario)


def test_of_a_store_of_several_clusters_one_is_asked_about() -> None:
    """A namespace and a pod's name, such as owl-8b-0, may be the same in each."""

    async def scenario(scene: Scene) -> None:
        scene.use_store(labels=PodLabels(matchers={"cluster": "eu-1"}))
        await scene.look()
        asked = [a.parameters["query"] for a in scene.server.asked if "query" in a.parameters]
        assert asked
        for query in asked:
            assert query.count(',cluster="eu-1"') == query.count("{__name__=~")

    play(scenario)


def test_replicas_that_are_not_deduplicated_count_once() -> None:
    async def scenario(scene: Scene) -> None:
        scene.use_store()
        for replica in ("prometheus-0", "prometheus-1"):
            scene.store.put("vllm:num_requests_running", "7", prometheus_replica=replica)
        assert (await scene.look()).readings.running == Value(7)

    play(scenario)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Answer("too many outstanding requests", status=429), "behavior.interval"),
        (Answer("upstream connect error", status=503), "status 503"),
        (Answer("<html>Sign in</html>", content_type="text/html"), "does not speak Prometheus"),
        (Answer(status=302, headers={"Location": "https://sso.example/?s=1"}), "redirects to"),
        (
            Answer('{"status":"error","errorType":"timeout","error":"query timed out"}', 503),
            "query timed out",
        ),
    ],
)
def test_what_stands_in_front_of_the_store_is_told_in_one_line(answer: Answer, words: str) -> None:
    async def scenario(scene: Scene) -> None:
        scene.use_store()
        scene.store.fault = answer
        reading = (await scene.look()).readings.kv_usage
        assert isinstance(reading, Unknown)
        assert reading.reason is Reason.SOURCE_UNAVAILABLE
        assert words in reading.message
        assert "\n" not in reading.message
        # Nothing is retried, and the other queries of the round would fare no better.
        assert len([each for each in scene.server.asked if each.parameters]) == 1

    play(scenario)


def test_a_query_that_the_store_refuses_alone_leaves_the_others() -> None:
    async def scenario(scene: Scene) -> None:
        scene.use_store()
        scene.store.put(KV, "0.40")
        body = '{"status":"error","errorType":"execution","error":"too many samples"}'
        refusal = Answer(body, status=422, content_type="application/json")
        scene.server.respond = lambda asked: (
            refusal
            if "_bucket" in asked.parameters.get("query", "")
            else scene.store.respond(asked)
            if asked.parameters
            else Answer(status=404)
        )
        seen = await scene.look()
        assert seen.readings.kv_usage == Value(0.4)
        assert isinstance(seen.readings.ttft, Unknown)
        assert "too many samples" in seen.readings.ttft.message

    play(scenario)
