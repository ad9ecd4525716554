"""The offline yardsticks against brute force, and against everything that cannot see the future."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from evictune_policies.algorithms.catalog import POLICIES
from evictune_policies.algorithms.future import hits_if_nothing_is_evicted
from evictune_policies.algorithms.infinite import room_for_everything
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.brute_force import least_cost
from tests.support.plain_replay import PlainRequest, chains_of, replay_plain, setting_of

BLOCK = 4
ONLINE = st.sampled_from([name for name, policy in POLICIES.items() if not policy.offline])


@dataclass(frozen=True)
class Trace:
    """A tiny trace, a pool, and a xi."""

    requests: list[PlainRequest]
    capacity_blocks: int
    xi_tokens: int

    @property
    def prompts(self) -> list[int]:
        return [request.prompt_tokens for request in self.requests]

    def hits(self, policy: str, xi_tokens: int | None = None) -> list[int]:
        xi = self.xi_tokens if xi_tokens is None else xi_tokens
        setting = setting_of(
            self.requests, self.capacity_blocks, BLOCK, xi_tokens=xi, q_hat_tokens=BLOCK
        )
        outcome = replay_plain(self.requests, POLICIES[policy], setting)
        return [outcome.hits[request] for request in range(len(self.requests))]

    def excess(self, request: int, hits: int) -> int:
        return max(0, self.prompts[request] - hits * BLOCK - self.xi_tokens)

    def tel(self, hits: list[int]) -> int:
        return sum(self.excess(request, found) for request, found in enumerate(hits))


@st.composite
def requests(draw: st.DrawFn, longest: int, most: int, rest: st.SearchStrategy[int]) -> list:
    """Chains that share prefixes; some tokens of the prompt beyond its whole blocks, or none."""
    made = []
    for _ in range(draw(st.integers(2, most))):
        blocks = tuple(draw(st.lists(st.integers(0, 1), min_size=1, max_size=longest)))
        prompt = draw(st.integers(0, len(blocks))) * BLOCK + draw(rest)
        tokens = max(len(blocks) * BLOCK, prompt)
        made.append(PlainRequest(blocks, max(1, prompt), tokens))
    return made


@st.composite
def traces(draw: st.DrawFn, longest: int = 3, most: int = 8, room: int = 4) -> Trace:
    """Block-aligned: what a prompt is longer than xi is whole blocks."""
    rest = draw(st.integers(0, BLOCK - 1))
    made = draw(requests(longest, most, st.just(rest)))
    size = max(len(request.blocks) for request in made)
    xi = draw(st.integers(0, longest)) * BLOCK + rest
    return Trace(made, draw(st.integers(size, size + room)), xi)


@settings(max_examples=120)
@given(trace=traces())
def test_tail_belady_has_the_least_tel_there_is(trace: Trace) -> None:
    least = least_cost(chains_of(trace.requests), trace.capacity_blocks, BLOCK, cost=trace.excess)
    assert trace.tel(trace.hits("tail-belady")) == least


@settings(max_examples=100)
@given(made=requests(3, 8, st.integers(0, BLOCK - 1)), room=st.integers(0, 4))
def test_belady_has_the_most_hits_there_are(made: list[PlainRequest], room: int) -> None:
    capacity = max(len(request.blocks) for request in made) + room
    most = -least_cost(chains_of(made), capacity, BLOCK, cost=lambda request, hits: -hits)
    assert sum(Trace(made, capacity, 0).hits("belady")) == most


@settings(max_examples=150)
@given(policy=ONLINE, trace=traces(longest=5, most=20, room=8), other_xi=st.integers(0, 6 * BLOCK))
def test_no_online_policy_has_less_tel(policy: str, trace: Trace, other_xi: int) -> None:
    """Whatever xi that policy itself is given."""
    assert trace.tel(trace.hits(policy, other_xi)) >= trace.tel(trace.hits("tail-belady"))


@settings(max_examples=150)
@given(
    policy=ONLINE,
    labels=st.lists(st.integers(0, 9), min_size=5, max_size=40),
    capacity=st.integers(1, 8),
)
def test_no_online_policy_has_more_hits_on_a_flat_stream(
    policy: str, labels: list[int], capacity: int
) -> None:
    flat = [
        PlainRequest((label,), BLOCK + 1, BLOCK + 1, float(i)) for i, label in enumerate(labels)
    ]
    trace = Trace(flat, capacity, 0)
    assert sum(trace.hits(policy)) <= sum(trace.hits("belady"))


@settings(max_examples=40)
@given(made=requests(5, 12, st.integers(0, BLOCK - 1)))
def test_nothing_is_missed_twice_without_bounds(made: list[PlainRequest]) -> None:
    everything = sum(len(request.blocks) for request in made)
    expected = Trace(made, everything, 0).hits("prefix-lru")
    assert hits_if_nothing_is_evicted(chains_of(made), BLOCK).tolist() == expected
    capacity = room_for_everything(setting_of(made, 1, BLOCK))
    assert Trace(made, capacity, 0).hits("infinite") == expected


@settings(max_examples=40)
@given(trace=traces())
def test_tail_belady_at_xi_0_is_belady(trace: Trace) -> None:
    assert trace.hits("tail-belady", 0) == trace.hits("belady")


def test_the_check_of_the_brute_force_itself() -> None:
    """A case worked by hand: 3 blocks, chains ab, c, d, ab: c's or d's block takes b's place."""
    made = [
        PlainRequest(blocks, len(blocks) * BLOCK + 1, len(blocks) * BLOCK + 1)
        for blocks in [(0, 1), (2,), (3,), (0, 1)]
    ]
    most = -least_cost(chains_of(made), 3, BLOCK, cost=lambda request, hits: -hits)
    assert most == 2
    assert -least_cost(chains_of(made), 2, BLOCK, cost=lambda request, hits: -hits) == 1
    assert np.array_equal(Trace(made, 2, 0).hits("belady"), [0, 0, 0, 1])
