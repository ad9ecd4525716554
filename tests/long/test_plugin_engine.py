"""The plugin in a real vLLM: started under the worst conditions, then turned while it serves."""

from __future__ import annotations

import json
import os
import random
import socket
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest

from tests.support.engine_process import Answer, EngineProcess

HOST = f"127.94.{os.getpid() % 250 + 1}.1"
STOCK = {"0": ("lru", "", "", "0")}


def document(revision: int, xi: int, seconds: float = 3600) -> str:
    expires = datetime.now(UTC) + timedelta(seconds=seconds)
    return json.dumps(
        {
            "schema": "evictune.io/knobs/v1",
            "revision": revision,
            "expires": expires.isoformat(timespec="milliseconds"),
            "default": {"policy": "t-lru", "xiTokens": xi, "qHatTokens": 60},
        }
    )


def eventually(condition: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"did not come true within {seconds} s"
        time.sleep(0.1)


def conversations(engine: EngineProcess, seed: int) -> list[Answer]:
    """Three growing conversations with short visitors between, more than the pool holds."""
    choice = random.Random(seed)

    def words(count: int) -> list[int]:
        return [choice.randrange(3, 1000) for _ in range(count)]

    histories = [words(500) for _ in range(3)]
    answers = []
    for _ in range(4):
        for history in histories:
            history += words(60)
            answers.append(engine.complete(history))
            answers += [engine.complete(words(150)) for _ in range(3)]
    return answers


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineProcess]:
    """Started with garbage for knobs and its metrics port taken; it must serve all the same."""
    engine = EngineProcess(
        tmp_path_factory.mktemp("engine"), HOST, environment={"VLLM_SERVER_DEV_MODE": "1"}
    )
    (engine.knobs / "knobs.json").write_bytes(b"\x00\xff not knobs")
    try:
        with socket.create_server((HOST, 9410)):
            engine.start()
            assert engine.complete([5] * 40).text
        yield engine
    finally:
        engine.stop()


def test_port_freed_later_shows_that_garbage_was_refused(engine: EngineProcess) -> None:
    eventually(lambda: engine.in_force() == STOCK)
    ((labels, _),) = engine.series("evictune_refused_document_info")
    assert labels["reason"] == "Malformed"
    assert engine.series("evictune_engine_eligible") == [({"engine": "0", "reason": ""}, 1)]
    assert "Address already in use" in engine.log.read_text()


def test_idle_engine_acknowledges_a_change_without_restart(engine: EngineProcess) -> None:
    processes = engine.engine_pids()
    for revision, xi in ((7, 512), (8, 256)):
        engine.put_knobs(document(revision, xi))
        wanted = {"0": ("t-lru", str(xi), "60", str(revision))}
        eventually(lambda wanted=wanted: engine.in_force() == wanted, 10)  # type: ignore[misc]
    assert engine.engine_pids() == processes
    ((_, changes),) = engine.series("evictune_knob_change_seconds_count")
    assert changes == 2


def test_malformed_document_leaves_the_old_values_and_says_why(engine: EngineProcess) -> None:
    engine.put_knobs(document(8, 256))
    eventually(lambda: engine.in_force()["0"][3] == "8")
    engine.put_knobs(document(9, 256).replace("256", "-1"))
    eventually(lambda: bool(engine.series("evictune_refused_document_info")))
    ((labels, _),) = engine.series("evictune_refused_document_info")
    assert labels["reason"] == "OutOfRange"
    assert "default.xiTokens is -1" in labels["message"]
    assert engine.in_force() == {"0": ("t-lru", "256", "60", "8")}
    assert engine.complete([6] * 40).text


def test_expiry_and_absence_return_to_stock(engine: EngineProcess) -> None:
    engine.put_knobs(document(10, 128, seconds=5))
    eventually(lambda: engine.in_force()["0"][3] == "10", 4)
    eventually(lambda: engine.in_force() == STOCK)
    engine.put_knobs(document(10, 128))
    eventually(lambda: engine.in_force()["0"][3] == "10")
    engine.put_knobs(None)
    eventually(lambda: engine.in_force() == STOCK)
    assert engine.series("evictune_refused_document_info") == []


def test_answers_are_the_same_with_the_policy_on_and_off(engine: EngineProcess) -> None:
    answers = {}
    evicted: dict[str, float] = {}
    for revision, knobs in ((0, None), (11, document(11, 256))):
        engine.put_knobs(knobs)
        eventually(lambda revision=revision: engine.in_force()["0"][3] == str(revision))  # type: ignore[misc]
        engine.post("/reset_prefix_cache", {})
        answers[revision] = conversations(engine, seed=1)
    eventually(lambda: bool(engine.series("evictune_evicted_blocks_total")))
    for labels, count in engine.series("evictune_evicted_blocks_total"):
        evicted[labels["region"]] = count
    assert [answer.text for answer in answers[11]] == [answer.text for answer in answers[0]]
    cached = {
        revision: [answer.cached_tokens for answer in answers[revision]] for revision in answers
    }
    assert cached[11] != cached[0], "the policy changed nothing: the comparison proves nothing"
    assert evicted["lru"] > 0
    assert evicted["tel-safe"] > 0


def test_a_change_under_load_reaches_a_busy_scheduler(engine: EngineProcess) -> None:
    engine.put_knobs(document(12, 300))
    eventually(lambda: engine.in_force()["0"][3] == "12")
    engine.put_knobs(document(13, 200))
    deadline = time.monotonic() + 30
    while engine.in_force()["0"][3] != "13":
        assert time.monotonic() < deadline
        engine.complete([random.randrange(3, 1000) for _ in range(100)], tokens=30)
    engine.post("/reset_prefix_cache", {})
    assert engine.complete([9] * 200).cached_tokens == 0
