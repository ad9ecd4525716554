"""The load: the same for everyone, and such that xi matters as the demonstration says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import pytest

from demo.constants import ENGINE, LOAD, OBJECTIVE, SHORT_LOAD
from demo.load import Kind, Request, encore, sequence
from demo.record import percentile
from tests.support.prefix_pool import PrefixPool

TARGET = OBJECTIVE.threshold_tokens
QUANTILE = float(OBJECTIVE.quantile)


@pytest.fixture(scope="module")
def requests() -> list[Request]:
    return list(sequence())


def uncached(requests: Sequence[Request], xi: int | None) -> dict[str, list[int]]:
    """Uncached tokens of each request, by phase."""
    pool = PrefixPool(ENGINE.blocks, ENGINE.block_tokens, OBJECTIVE.q_hat, xi)
    served: dict[str, list[int]] = {}
    for request in requests:
        tokens = pool.serve(request.prompt, request.output_tokens)
        served.setdefault(request.phase, []).append(tokens)
    return served


def test_it_is_the_same_each_time(requests: list[Request]) -> None:
    assert list(sequence()) == requests


def test_it_has_the_requests_that_the_constants_promise(requests: list[Request]) -> None:
    kinds = Counter(request.kind for request in requests)
    turns = sum(phase.conversations * phase.rounds for phase in LOAD.phases)
    assert kinds == {
        Kind.TURN: turns,
        Kind.ONE_SHOT: turns * LOAD.one_shots,
    }
    assert [request.index for request in requests] == list(range(len(requests)))
    assert max(len(request.prompt) for request in requests) < ENGINE.max_model_tokens


def test_a_turn_says_all_that_was_said_or_begins_again_with_the_document(
    requests: list[Request],
) -> None:
    for conversation in range(5):
        prompts = [r.prompt for r in requests if r.conversation == conversation]
        document = prompts[0][: LOAD.document_tokens]
        for before, after in pairwise(prompts):
            grown = after[: len(before)] == before and len(after) == len(before) + 60
            assert grown or after == document


def test_no_counted_phase_has_a_first_touch(requests: list[Request]) -> None:
    seen = set()
    for request in requests:
        if request.kind is Kind.TURN:
            document = request.prompt[: LOAD.document_tokens]
            assert document in seen or not request.counted
            seen.add(document)


def test_the_short_load_is_the_first_act(requests: list[Request]) -> None:
    short = list(sequence(SHORT_LOAD))
    assert short == requests[: len(short)]


def test_the_encore_goes_on_where_the_second_act_ends(requests: list[Request]) -> None:
    following = list(encore())
    assert [request.index for request in following[:2]] == [len(requests), len(requests) + 1]
    assert len(following) == LOAD.encore.rounds * LOAD.encore.conversations * (1 + LOAD.one_shots)
    assert not any(request.counted for request in following)
    before = [r.prompt for r in requests if r.conversation == 0][-1]
    after = next(r.prompt for r in following if r.conversation == 0)
    assert after[: LOAD.document_tokens] == before[: LOAD.document_tokens]
    assert list(encore(SHORT_LOAD)) == []


def test_the_tail_follows_xi_while_what_is_protected_fits(requests: list[Request]) -> None:
    tails = {
        xi: percentile(uncached(requests, xi)["three"], QUANTILE) for xi in (None, 256, 512, 1024)
    }
    assert tails[256] < 0.9 * TARGET < 1.05 * TARGET < tails[512]
    assert tails[512] < tails[1024] < tails[None]


def test_the_best_xi_moves_when_two_conversations_come_and_the_target_is_out_of_reach(
    requests: list[Request],
) -> None:
    candidates = (None, 32, 64, 128, 192, 256, 352, 512, 736, 1024, 1440, 2048, 4096)
    tails = {xi: percentile(uncached(requests, xi)["five"], QUANTILE) for xi in candidates}
    # What served three well is stock LRU's tail now, or close to it.
    assert tails[256] > 0.85 * tails[None]
    assert min(tails, key=lambda xi: tails[xi]) == 512
    assert 1.05 * TARGET < tails[512] < 0.5 * tails[None]
