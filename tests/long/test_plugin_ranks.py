"""Two data-parallel ranks of one real vLLM: each has its own state, one port serves both."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from tests.support.engine_process import EngineProcess

HOST = f"127.95.{os.getpid() % 250 + 1}.1"


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineProcess]:
    engine = EngineProcess(
        tmp_path_factory.mktemp("ranks"),
        HOST,
        arguments=["--data-parallel-size", "2"],
        environment={"VLLM_CPU_OMP_THREADS_BIND": "nobind"},
    )
    try:
        engine.start()
        yield engine
    finally:
        engine.stop()


def test_both_ranks_acknowledge_through_one_port(ranks: EngineProcess) -> None:
    expires = datetime.now(UTC) + timedelta(hours=1)
    ranks.put_knobs(
        json.dumps(
            {
                "schema": "evictune.io/knobs/v1",
                "revision": 3,
                "expires": expires.isoformat(),
                "default": {"policy": "lru"},
                "pods": {"chat-0": {"policy": "t-lru", "xiTokens": 512, "qHatTokens": 60}},
            }
        )
    )
    acknowledged = dict.fromkeys(("0", "1"), ("t-lru", "512", "60", "3"))
    deadline = time.monotonic() + 60
    while ranks.in_force() != acknowledged:
        assert time.monotonic() < deadline, f"in force: {ranks.in_force()}"
        time.sleep(0.2)
    assert ranks.complete([5] * 100).text
