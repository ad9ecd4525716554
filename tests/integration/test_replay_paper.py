"""The shape of the T-LRU paper's result on conversations like ShareGPT's.

Set-up (arXiv 2510.15152, section 5 and appendix G.2): conversations begin at 1/s, q_hat is 100
tokens, pools hold up to 10,000 tokens, the first token takes a time linear in the uncached tokens,
violations are of 200 ms. Requests are replayed one at a time, as there.

- Cost. Of Vicuna-7B on an A100 the paper gives a plot only. 0.25 ms a token is taken: with it, half
  of the prompts take more than 150 ms when nothing is cached; in the paper's smallest pool, half of
  the requests take more than 209 ms.
- Lengths: `share_gpt`. The longest request has to fit in the pool: as in vLLM, and unlike in the
  paper, what was computed is cached. So pools begin at 6,000 tokens, not at 1,000.
- Turns. The paper says that the times between turns are exponential with rate 3/s. Then so little
  comes between two turns that a pool of 10,000 tokens holds all that is needed: LRU has as few
  violations as an infinite cache has, give or take a tenth, and no policy could improve its p90 by
  the 9 % that the paper reports at that size for xi 500 ms (its table 4): LRU's own p90 is below
  60 ms. With a mean of 3 s (what NumPy's `exponential(3)` draws) everything falls into place.
  Both are tested.

The shape: at xi 150 and 200 ms p90 and p95 fall, by more in larger pools; at 500 ms, wrong for this
target, p99 falls, but violations rise, the more the larger the pool, and p90 gets worse; the median
pays in every case (tables 1, 3, 4 and 6). Knowing which conversations have ended is worth much,
knowing the next prompt's length little more (figure 6). xi 200 for a target of 200 parks users just
above it, here too: 150 has fewer violations (table 6).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from evictune_policies.replay.simulation.order import OrderReplay
from evictune_policies.replay.simulation.result import Result
from evictune_policies.replay.traces.assumptions import Assumptions
from evictune_policies.replay.traces.reading import read_trace
from evictune_policies.replay.yardsticks import tel, uncached_quantile, violations

from tests.support.share_gpt import write_conversations

POOLS = (6_000, 8_000, 10_000)  # tokens
BLOCK = 16
Q_HAT = 100
TOKENS_PER_MS = 4
SLO = 200 * TOKENS_PER_MS


@dataclass(frozen=True)
class SetUp:
    """Replays of the same conversations, turns following each other fast or slowly."""

    replay: OrderReplay

    @cache  # noqa: B019 - as many as there are tests
    def run(self, policy: str, pool_tokens: int, xi_ms: int = 0) -> Result:
        return self.replay.run(
            policy, pool_tokens // BLOCK, xi_tokens=xi_ms * TOKENS_PER_MS, q_hat_tokens=Q_HAT
        )

    def fewer_violations(self, pool_tokens: int, xi_ms: int, policy: str = "t-lru") -> float:
        """Than LRU has, as a share of LRU's: above 0 is better."""
        lru = violations(self.run("prefix-lru", pool_tokens), SLO)
        return 1 - violations(self.run(policy, pool_tokens, xi_ms), SLO) / lru

    def lower(self, q: float, pool_tokens: int, xi_ms: int) -> float:
        """How much lower T-LRU's quantile is than LRU's, as a share of LRU's."""
        lru = uncached_quantile(self.run("prefix-lru", pool_tokens), q)
        return 1 - uncached_quantile(self.run("t-lru", pool_tokens, xi_ms), q) / lru


def set_up(directory: Path, seconds_between_turns: float) -> SetUp:
    path = directory / "conversations.json"
    write_conversations(path, 3_000, seed=0)
    assumptions = Assumptions(1.0, seconds_between_turns, seed=1, block_tokens=BLOCK)
    return SetUp(OrderReplay(read_trace(path, "conversations", assumptions)))


@pytest.fixture(scope="module")
def paper(tmp_path_factory: pytest.TempPathFactory) -> SetUp:
    return set_up(tmp_path_factory.mktemp("share-gpt"), 3.0)


@pytest.fixture(scope="module")
def literal(tmp_path_factory: pytest.TempPathFactory) -> SetUp:
    return set_up(tmp_path_factory.mktemp("share-gpt-literal"), 1 / 3)


@pytest.mark.parametrize("xi_ms", [150, 200])
def test_a_fitting_xi_lowers_the_tail(paper: SetUp, xi_ms: int) -> None:
    gains = [(paper.lower(0.9, pool, xi_ms), paper.lower(0.95, pool, xi_ms)) for pool in POOLS]
    assert all(p90 > 0.1 and p95 > 0.05 for p90, p95 in gains)
    assert gains[-1][1] > gains[0][1]


def test_below_the_target_xi_has_fewer_violations(paper: SetUp) -> None:
    gains = [paper.fewer_violations(pool, 150) for pool in POOLS]
    assert all(gain > 0.1 for gain in gains)
    assert gains == sorted(gains), "the larger the pool, the more"


def test_the_targets_own_xi_parks_users_just_above_it(paper: SetUp) -> None:
    for pool in POOLS:
        assert -0.1 < paper.fewer_violations(pool, 200) < paper.fewer_violations(pool, 150) - 0.05


def test_a_wrong_xi_hurts(paper: SetUp) -> None:
    gains = [paper.fewer_violations(pool, 500) for pool in POOLS]
    assert all(gain < -0.3 for gain in gains)
    assert gains == sorted(gains, reverse=True), "the larger the pool, the more"
    for pool in POOLS:
        assert paper.lower(0.9, pool, 500) < -0.05
        assert paper.lower(0.99, pool, 500) > 0.1, "what it is for: the far tail"


@pytest.mark.parametrize("xi_ms", [150, 200, 500])
def test_the_median_pays_and_tel_falls(paper: SetUp, xi_ms: int) -> None:
    xi = xi_ms * TOKENS_PER_MS
    for pool in POOLS:
        assert paper.lower(0.5, pool, xi_ms) < 0
        lru, t_lru, best = (
            tel(paper.run(policy, pool, xi_ms), xi)
            for policy in ("prefix-lru", "t-lru", "tail-belady")
        )
        assert best < t_lru < lru


def test_knowing_the_end_is_worth_more_than_knowing_the_length(paper: SetUp) -> None:
    xi = 200 * TOKENS_PER_MS
    for pool in POOLS:
        t_lru, end_aware, length_aware, best = (
            tel(paper.run(policy, pool, 200), xi)
            for policy in ("t-lru", "end-aware-t-lru", "length-aware-t-lru", "tail-belady")
        )
        assert t_lru - end_aware > 3 * (end_aware - length_aware) > 0
        assert length_aware >= best


def test_with_three_turns_a_second_eviction_is_not_the_problem(literal: SetUp) -> None:
    lru, floor = literal.run("prefix-lru", 10_000), literal.run("infinite", 10_000)
    assert uncached_quantile(lru, 0.9) < 60 * TOKENS_PER_MS
    assert violations(lru, SLO) <= 1.1 * violations(floor, SLO)
    assert literal.fewer_violations(10_000, 500) < -1.0, "and T-LRU gives away what LRU keeps"
