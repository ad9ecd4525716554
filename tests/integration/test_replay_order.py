"""The order-only replay: compiled as plain, against an independent driver, and never out of bounds.

Every policy of the catalog is compiled here, which takes seconds for each in a fresh checkout.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from evictune_policies.algorithms import operations
from evictune_policies.algorithms.catalog import POLICIES, Cost, Policy
from evictune_policies.algorithms.pool import NONE
from evictune_policies.replay.simulation import order
from evictune_policies.replay.simulation.order import OrderReplay, replay_in_order
from evictune_policies.replay.simulation.result import Result
from evictune_policies.replay.traces.trace import Trace

from tests.support.plain_replay import PlainRequest, replay_plain, setting_of

SIZE = 4
XI, Q_HAT = 40, 8


class Conversations:
    """Random conversations that share system prompts, with one-shot floods between them."""

    def __init__(self, seed: int, requests: int = 160, most_answer: int = 2) -> None:
        random = np.random.default_rng(seed)
        self.labels: list[tuple[int, ...]] = []
        self.prompt: list[int] = []
        self.output: list[int] = []
        open_chains: list[tuple[int, ...]] = []
        for number in range(requests):
            if open_chains and random.random() < 0.6:
                before = open_chains.pop(int(random.integers(len(open_chains))))
            else:
                before = tuple(range(int(random.integers(4))))  # a shared system prompt
            grown = before + tuple(1000 * number + part for part in range(random.integers(1, 9)))
            blocks = grown[:24]
            answer = int(random.integers(0, most_answer + 1)) if len(blocks) > 3 else 0
            prompt = (len(blocks) - answer) * SIZE + int(random.integers(0, SIZE)) * (answer == 0)
            # As many tokens as make the last block full, and one that is sampled but not computed.
            self.labels.append(blocks)
            self.prompt.append(prompt)
            self.output.append(answer * SIZE + 1)
            if random.random() < 0.7:
                open_chains.append(blocks)

    def requests(self) -> list[PlainRequest]:
        return [
            PlainRequest(blocks, prompt, prompt + output, arrival=float(number))
            for number, (blocks, prompt, output) in enumerate(
                zip(self.labels, self.prompt, self.output, strict=True)
            )
        ]

    def trace(self) -> Trace:
        chains = setting_of(self.requests(), 1, SIZE).chains
        n = len(self.labels)
        return Trace(
            name="random conversations",
            block_tokens=SIZE,
            arrival=np.arange(n, dtype=float),
            prompt_tokens=chains.prompt_tokens,
            output_tokens=np.array(self.output),
            starts=chains.starts,
            contents=chains.contents,
            known_tokens=np.array([len(blocks) * SIZE for blocks in self.labels]),
            parent=chains.parent,
            depth=chains.depth,
            previous=np.full(n, NONE, np.int32),
            think=np.full(n, np.nan),
            tenant=np.zeros(n, np.int32),
            final=chains.final,
        )


@pytest.fixture(scope="module")
def prepared() -> OrderReplay:
    return OrderReplay(Conversations(1).trace())


def knobs(policy: Policy) -> dict[str, Any]:
    return {"xi_tokens": XI, "q_hat_tokens": Q_HAT, "cost": Cost(1e-4, 1e-8)}


def same(one: Result, other: Result) -> bool:
    fields = ("cached_tokens", "recomputed", "hit_age", "eviction_age")
    return all(np.array_equal(getattr(one, f), getattr(other, f)) for f in fields)


@pytest.mark.parametrize("name", POLICIES)
def test_compiled_as_plain(prepared: OrderReplay, name: str) -> None:
    policy = POLICIES[name]
    for capacity in (30, 90):
        compiled = prepared.run(name, capacity, **knobs(policy))
        assert same(compiled, prepared.run(name, capacity, **knobs(policy), plain=True))
        assert compiled.cached_tokens.sum() > 0
        assert compiled.recomputed_tokens > 0 or policy.needs_blocks


@pytest.mark.parametrize("name", [name for name in POLICIES if not POLICIES[name].needs_blocks])
@pytest.mark.parametrize("seed", [2, 3])
def test_hits_as_of_an_independent_driver(name: str, seed: int) -> None:
    """The driver models whole blocks, and takes those of an output at once: here it is one."""
    conversations = Conversations(seed, most_answer=1)
    conversations.prompt = [
        len(blocks) * SIZE - (output - 1)
        for blocks, output in zip(conversations.labels, conversations.output, strict=True)
    ]
    requests, trace = conversations.requests(), conversations.trace()
    setting = setting_of(requests, 60, SIZE, **knobs(POLICIES[name]))
    plain = replay_plain(requests, POLICIES[name], setting)
    ours = OrderReplay(trace).run(name, 60, **knobs(POLICIES[name]), plain=True)
    assert [plain.hits[r] for r in range(len(requests))] == (ours.cached_tokens // SIZE).tolist()
    assert ours.eviction_age.sum() == len(plain.evicted)


@pytest.mark.parametrize("name", POLICIES)
def test_blocks_found_and_filled_add_up(
    prepared: OrderReplay, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found and filled are all whole blocks; filled are those evicted, expired or still there."""
    kept: list[tuple[Any, ...]] = []
    loop = order.replay
    monkeypatch.setattr(order, "replay", lambda *given: (kept.append(given), loop(*given)))
    policy = POLICIES[name]
    result = prepared.run(name, 50, **knobs(policy), plain=True)
    state, pool, places, requests, *_ = kept[0]
    whole, found = int(requests.whole.sum()), int(result.hit_age.sum())
    assert found == int(result.cached_tokens.sum()) // SIZE
    cached = int((pool.content != NONE).sum())
    assert cached + int(places.blanks[0]) == len(pool.content)
    assert not pool.references.any()
    gone = (whole - found) - cached
    evicted = int(result.eviction_age.sum())
    expires = operations.IMPLEMENTATIONS[type(state)].expired is not operations.never
    assert evicted <= gone if expires else evicted == gone
    assert np.all(result.cached_tokens <= np.maximum(result.prompt_tokens - 1, 0))
    assert np.all(result.cached_tokens + result.recomputed <= result.prompt_tokens)


def test_nothing_is_recomputed_without_eviction(prepared: OrderReplay) -> None:
    floor = prepared.run("infinite", prepared.least_capacity)
    assert floor.recomputed_tokens == 0
    assert prepared.run("prefix-lru", 10_000).cached_tokens.tolist() == floor.cached_tokens.tolist()
    some = prepared.run("prefix-lru", 50)
    assert np.array_equal(some.cached_tokens + some.recomputed, floor.cached_tokens)


def test_an_exact_repeat_computes_its_last_block_and_keeps_the_copy() -> None:
    trace = Conversations(4, requests=2).trace()
    blocks = np.arange(3, dtype=np.int32)
    trace = Trace(
        **{
            **vars(trace),
            "contents": np.tile(blocks, 2),
            "starts": np.array([0, 3, 6]),
            "prompt_tokens": np.array([12, 12]),
            "output_tokens": np.array([1, 1]),
            "known_tokens": np.array([12, 12]),
            "parent": blocks - 1,
            "depth": blocks,
        }
    )
    assert replay_in_order(trace, "prefix-lru", 4).cached_tokens.tolist() == [0, 8]


def test_a_pool_smaller_than_a_request_is_refused(prepared: OrderReplay) -> None:
    least = prepared.least_capacity
    with pytest.raises(ValueError, match=rf"capacity {least - 1} .* needs {least} blocks of 4"):
        prepared.run("prefix-lru", least - 1)
    assert prepared.run("prefix-lru", least).requests == 160


def test_an_unknown_policy_is_refused_with_the_known_ones(prepared: OrderReplay) -> None:
    with pytest.raises(ValueError, match=r"'lrru': unknown; use one of .*prefix-lru"):
        prepared.run("lrru", 100)


def test_what_was_compiled_is_kept_and_found_again(tmp_path: Path) -> None:
    program = (
        "from tests.integration.test_replay_order import Conversations\n"
        "from evictune_policies.replay.simulation import order\n"
        "order.OrderReplay(Conversations(1).trace()).run('prefix-lru', 50)\n"
        "print(*order._compiled_replay.stats.cache_hits.values())\n"
    )
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    environment.pop("NUMBA_CACHE_DIR", None)
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    first, second = (
        subprocess.run(
            [sys.executable, "-c", program],
            env=environment,
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            check=True,
            timeout=300,
        ).stdout.split()
        for _ in range(2)
    )
    assert (first, second) == ([], ["1"])
    assert list((tmp_path / "evictune").glob("compiled-*"))
