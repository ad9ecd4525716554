"""Of PA's kind: stores that are slow in every way, and what that costs others."""

from __future__ import annotations

import time
from typing import Any

import pytest
from evictune.api.observation import Unknown, Value
from evictune.api.reasons import Reason

from tests.support.field_case import PATIENCE, Scene, play, vector
from tests.support.page_server import Answer

KV = "vllm:kv_cache_usage_perc"


def test_a_trickle_of_bytes_ends_at_the_limit() -> None:
    """Every byte comes in time; together they would take a minute."""

    async def scenario(scene: Scene) -> None:
        scene.use_store(timeout=0.5)
        scene.store.put(KV, "0.40")
        slow = vector(scene.store.vectors[KV])
        scene.store.fault = Answer(slow.body, seconds_a_byte=0.25)
        began = time.monotonic()
        reading = (await scene.look()).readings.kv_usage
        assert time.monotonic() - began < 20
        assert isinstance(reading, Unknown)
        assert "no answer within 0.5 s" in reading.message

    play(scenario)


def test_a_thread_that_trickles_is_given_back() -> None:
    """The same source answers again once its store does: no look is stuck behind the old one."""

    async def scenario(scene: Scene) -> None:
        scene.use_store(timeout=1.5)
        scene.store.put(KV, "0.40")
        slow = vector(scene.store.vectors[KV])
        scene.store.fault = Answer(slow.body, seconds_a_byte=0.6)
        assert isinstance((await scene.look()).readings.kv_usage, Unknown)
        scene.store.fault = None
        began = time.monotonic()
        while not isinstance((await scene.look(after=60)).readings.kv_usage, Value):
            # The trickle itself would take two minutes.
            assert time.monotonic() - began < 60

    play(scenario)


def test_the_limit_is_for_all_queries_of_a_look_together() -> None:
    async def scenario(scene: Scene) -> None:
        scene.use_store(timeout=0.6)
        body = vector([]).body
        # A fifth of a second each: none is late, all of them together are.
        scene.store.fault = Answer(body, seconds_a_byte=0.2 / len(body))
        began = time.monotonic()
        reading = (await scene.look()).readings.kv_usage
        assert time.monotonic() - began < 20
        assert isinstance(reading, Unknown)
        assert reading.reason is Reason.SOURCE_UNAVAILABLE

    play(scenario)


@pytest.mark.parametrize(
    ("timeout", "fault", "words"),
    [
        (1.0, {"seconds_a_byte": 60.0}, "no answer within 1 s"),
        (PATIENCE, {"cut": True}, "broke its answer off"),
        (PATIENCE, {"headers": {"Content-Encoding": "gzip"}}, "broke its answer off"),
    ],
)
def test_an_answer_that_breaks_off_is_none(
    timeout: float, fault: dict[str, Any], words: str
) -> None:
    async def scenario(scene: Scene) -> None:
        scene.use_store(timeout=timeout)
        scene.store.put(KV, "0.40")
        scene.store.fault = Answer(vector(scene.store.vectors[KV]).body, **fault)
        reading = (await scene.look()).readings.kv_usage
        assert isinstance(reading, Unknown)
        assert reading.reason is Reason.SOURCE_UNAVAILABLE
        assert words in reading.message

    play(scenario)
