"""Of SI's kind: the scrape job names a pod's labels its own way, or pushes them aside."""

from __future__ import annotations

from typing import Any

import pytest
from evictune.api.observation import Unknown, Value
from evictune.api.reasons import Reason
from evictune.api.sources import PodLabels
from evictune.observe.dialects import Measure

from tests.support.field_case import NOW, Scene, play, vector
from tests.support.page_server import Answer, Asked

KV = "vllm:kv_cache_usage_perc"


def element(value: str, **labels: str) -> dict[str, Any]:
    return {"metric": {"engine": "0", "series": KV, **labels}, "value": [NOW, value]}


def test_labels_of_another_name_are_the_administrator_s_to_say() -> None:
    async def scenario(scene: Scene) -> None:
        scene.use_store(labels=PodLabels("kubernetes_namespace", "kubernetes_pod_name"))
        labels = {"kubernetes_namespace": "serve-a", "kubernetes_pod_name": "owl-8b-a"}
        # The labels of the usual names tell of the exporter in between.
        scene.store.vectors[KV] = [element("0.88", namespace="mon", pod="gateway-0", **labels)]
        assert (await scene.look()).readings.kv_usage == Value(0.88)
        text = next(q for a in scene.server.asked if KV in (q := a.parameters.get("query", "")))
        assert 'kubernetes_namespace=~"serve-a"' in text
        assert "max by (kubernetes_namespace, kubernetes_pod_name, engine, dp_rank)" in text

    play(scenario)


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (
            {"job": "vllm", "instance": "10.0.0.7:8000", "namespace": "serve-a"},
            "without the label pod; they have engine, instance, job, namespace",
        ),
        (
            {"job": "vllm", "kubernetes_namespace": "serve-a", "kubernetes_pod_name": "owl-8b-a"},
            "they have engine, job, kubernetes_namespace, kubernetes_pod_name",
        ),
        (
            {"namespace": "mon", "pod": "gateway-0", "exported_namespace": "serve-a"},
            "in exported_namespace: set honor_labels",
        ),
    ],
)
def test_series_that_belong_to_no_pod_are_told_with_their_labels(
    labels: dict[str, str], words: str
) -> None:
    def respond(asked: Asked) -> Answer:
        stray = asked.parameters["query"].startswith("topk(1")
        found = [{"metric": {"engine": "0"} | labels, "value": [NOW, "3"]}] if stray else []
        return vector(found)

    async def scenario(scene: Scene) -> None:
        scene.use_store()
        scene.server.respond = lambda asked: (
            respond(asked) if "query" in asked.parameters else Answer(status=404)
        )
        seen = await scene.look()
        reading = seen.readings.kv_usage
        assert isinstance(reading, Unknown)
        assert reading.reason is Reason.NO_SERIES
        assert words in reading.message
        # Whose series they are is not for every author of a policy to see.
        assert "10.0.0.7" not in reading.message
        assert "gateway-0" not in reading.message
        assert words in seen.condition("MetricsAvailable")[2]
        queries = [a for a in scene.server.asked if "query" in a.parameters]
        assert len(queries) == len(Measure) + 1

    play(scenario)


def test_an_element_without_a_pod_is_nobody_s() -> None:
    async def scenario(scene: Scene) -> None:
        scene.use_store()
        scene.store.vectors[KV] = [element("0.99", namespace="serve-a"), element("0.98")]
        scene.store.put(KV, "0.40")
        assert (await scene.look()).readings.kv_usage == Value(0.4)

    play(scenario)
