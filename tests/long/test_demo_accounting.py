"""A stock LRU run of the demonstration: the same tokens by the usage field and by the engine."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from demo.constants import ENGINE, LOAD
from demo.load import sequence
from demo.narrate import Narrator
from demo.play import Play
from demo.record import Arm
from demo.stage import Engine, Stage, stage
from tests.support.local_http import opened
from tests.support.prefix_pool import PrefixPool

# Two rounds with three conversations, then two more arrive: hits, misses and evictions.
FEW = replace(
    LOAD,
    phases=tuple(replace(phase, rounds=2) for phase in LOAD.phases if phase.name != "arrival"),
)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with stage(tmp_path_factory.mktemp("stage"), Narrator()) as up:
        yield up


@pytest.fixture(scope="module")
def engine(running: Stage) -> Iterator[Engine]:
    with running.engine() as up:
        yield up


@pytest.fixture(scope="module")
def arm(running: Stage, engine: Engine) -> Arm:
    played = Arm("lru", "stock LRU")
    asyncio.run(Play(played, running, engine, Narrator()).run(list(sequence(FEW))))
    return played


@pytest.fixture(scope="module")
def page(arm: Arm, engine: Engine) -> str:
    """The engine's metrics after the run, read by nothing of the demonstration."""
    with opened(f"{engine.url}/metrics") as answer:
        text: str = answer.read().decode()
    return text


def counter(page: str, name: str, **labels: str) -> float:
    """The sum of a counter's samples that carry the labels; there must be one."""
    values = [
        sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    ]
    assert values, f"the engine has no {name} with {labels}"
    return sum(values)


def test_every_way_of_counting_agrees(arm: Arm, page: str) -> None:
    uncached = sum(outcome.answer.uncached_tokens for outcome in arm.outcomes)
    prompts = sum(len(outcome.request.prompt) for outcome in arm.outcomes)
    queries = counter(page, "vllm:prefix_cache_queries_total")
    hits = counter(page, "vllm:prefix_cache_hits_total")
    assert 0 < uncached < prompts
    assert counter(page, "vllm:prompt_tokens_total") == prompts
    assert counter(page, "vllm:prompt_tokens_by_source_total", source="local_compute") == uncached
    assert queries - hits == uncached
    assert arm.uncached_tokens == arm.computed_tokens == uncached


def test_it_was_stock_lru(arm: Arm) -> None:
    """By the engine's word, and by a reference model of LRU, request by request."""
    assert {sample.xi_tokens for sample in arm.samples} == {None}
    pool = PrefixPool(ENGINE.blocks, ENGINE.block_tokens)
    expected = [pool.serve(o.request.prompt, o.request.output_tokens) for o in arm.outcomes]
    served = [outcome.answer.uncached_tokens for outcome in arm.outcomes]
    # The output's last tokens can fill a block, which the reference does not keep.
    differing = [pair for pair in zip(expected, served, strict=True) if pair[0] != pair[1]]
    assert all(abs(one - other) <= ENGINE.block_tokens for one, other in differing)
    assert len(differing) <= len(served) // 50


def test_the_engine_saw_as_many_first_tokens_as_the_client(arm: Arm, page: str) -> None:
    count = counter(page, "vllm:time_to_first_token_seconds_count")
    assert count == len(arm.outcomes)
    # The engine's clock begins when the request has arrived, the client's when it is sent.
    total = counter(page, "vllm:time_to_first_token_seconds_sum")
    assert total < sum(outcome.answer.ttft for outcome in arm.outcomes)


def test_its_logs_stay(running: Stage) -> None:
    assert Path(running.cluster.directory, "logs", "kube-apiserver.log").exists()
