"""Of SI's kind: the same numbers under two jobs, two scrapers or a router count once.

What the queries do with such series a real PromQL engine shows in tests/integration/test_promql.py;
here, what is done with answers that hold them.
"""

from __future__ import annotations

import pytest
from evictune.api.observation import Interval, Value

from tests.support.field_case import Scene, engine_page, play, ttft_page


@pytest.mark.parametrize("values", [("0.64", "0.61"), ("0.61", "0.64")])
def test_two_elements_of_one_rank_are_one_engine(values: tuple[str, str]) -> None:
    async def scenario(scene: Scene) -> None:
        scene.use_store()
        for job, value in zip(("pods", "services"), values, strict=True):
            scene.store.put("vllm:kv_cache_usage_perc", value, job=job)
            scene.store.put("vllm:num_requests_running", "7", job=job)
            scene.store.put("vllm:num_preemptions_total", "150", job=job)
        seen = (await scene.look()).readings
        assert seen.kv_usage == Value(0.64)
        assert seen.running == Value(7)
        assert seen.preemptions == Value(0.5)
        assert len(seen.engines) == 1

    play(scenario)


def test_a_router_s_copy_of_its_engines_numbers_is_the_router_s() -> None:
    async def scenario(scene: Scene) -> None:
        scene.use_store()
        scene.store.put("vllm:num_requests_running", "3")
        for server in ("a", "b"):
            scene.store.put("vllm:num_requests_running", "30", "router-0", server=server)
        assert (await scene.look()).readings.running == Value(3)

    play(scenario)


def test_lines_of_a_page_that_differ_in_no_part_repeat_each_other() -> None:
    async def scenario(scene: Scene) -> None:
        counts = {"0.5": 50, "1": 90, "+Inf": 100}
        for after, share in ((0, 0), (60, 1)):
            text = ""
            for process in ("17", "18"):
                labels = f'engine="0",pid="{process}"'
                text += engine_page(labels, num_requests_running=4)
                text += ttft_page({le: n * share for le, n in counts.items()}, labels)
            scene.page("owl-8b-a", text)
            seen = (await scene.look(after)).readings
        assert seen.running == Value(4)
        assert isinstance(seen.ttft, Interval)
        assert seen.ttft.requests == 100

    play(scenario)
