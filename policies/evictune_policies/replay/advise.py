"""Which policy, which xi, what it costs the median, and whether any eviction order can help.

Pure: it is handed a trace and a function that replays it. Parameters are fitted on the first half
of the trace and judged on the other. Candidates are ranked as everywhere: fewest late requests,
then least TEL, then least cost to p25 and p50.

Two things it takes care of. The best xi to set is not the target's own xi, so it is searched. And
q_hat is not a guess but an upper quantile of how much a conversation grows from turn to turn: with
less, users come back just above xi, which lowers TEL and yet can make more requests late.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum

import numpy as np

from evictune_policies.algorithms.catalog import POLICIES
from evictune_policies.algorithms.pool import NONE
from evictune_policies.replay.goal import Goal, Score, score
from evictune_policies.replay.knobs import Knobs
from evictune_policies.replay.simulation.result import Int64, Result
from evictune_policies.replay.traces.trace import Trace
from evictune_policies.replay.yardsticks import quantile

STOCK, FLOOR, ORACLE = "prefix-lru", "infinite", "tail-belady"
Q_HAT_QUANTILE = 0.9
"""q_hat: this share of turns grows by no more."""
GRID = (*(step / 16 for step in range(1, 21)), 1.5, 2.0, 3.0)
"""xi - q_hat that are tried, in units of the target's own xi."""
REFINEMENTS = 3
"""How often the distance to the best one's neighbours is halved."""


Replay = Callable[[Trace, Knobs], Result]


class Verdict(Enum):
    """What the advice comes to."""

    FLOOR_ABOVE_TARGET = "FloorAboveTarget"  # no eviction policy can reach the target
    STOCK_MEETS_TARGET = "StockMeetsTarget"  # the engine's own order does
    REACHED = "Reached"  # by a candidate, on the half it was not fitted on too
    REACHED_ONCE = "ReachedOnce"  # where it was fitted only
    BETTER = "Better"  # a candidate is better than the stock order, but misses the target
    NO_GAIN = "NoGain"  # no candidate is better on the other half


@dataclass(frozen=True)
class Trial:
    """Knobs as they did on the first half, where they were fitted."""

    knobs: Knobs
    fitted: Score


@dataclass(frozen=True)
class Outcome:
    """Knobs as they did in one replay of the whole trace.

    role: stock; floor (infinite cache); oracle (tail-optimal Belady); naive (T-LRU with the
    target's own xi, q_hat the median growth); best (what was fitted).
    """

    role: str
    knobs: Knobs
    result: Result
    whole: Score
    first: Score
    other: Score


@dataclass(frozen=True)
class Advice:
    """Everything the report says.

    q_hat_tokens and turns: the growth that q_hat covers, and from how many turns it was read.
    best: None when no candidate was searched, because the stock order meets the target.
    """

    goal: Goal
    capacity_blocks: int
    q_hat_tokens: int
    turns: int
    verdict: Verdict
    outcomes: Sequence[Outcome]
    trials: Sequence[Trial] = field(default=())

    def outcome(self, role: str) -> Outcome | None:
        """The outcome in this role, if there is one."""
        return next((outcome for outcome in self.outcomes if outcome.role == role), None)

    @property
    def gain(self) -> bool:
        """Whether the best candidate does better than the stock order where it was not fitted."""
        stock, best = self.outcome("stock"), self.outcome("best")
        return bool(stock and best and best.other.rank < stock.other.rank)


def advise(
    trace: Trace,
    capacity_blocks: int,
    goal: Goal,
    replay: Replay,
    candidates: Sequence[str] = ("t-lru",),
) -> Advice:
    """Search the candidates' parameters on the first half; judge everything on the other.

    candidates: online policies besides the engine's own order. At most `most_replays` replays.
    Raises ValueError for a trace of less than two requests, which has no halves, and for a
    candidate that knows the future.
    """
    _check(trace, candidates)
    middle = trace.requests // 2

    def outcome(role: str, knobs: Knobs) -> Outcome:
        return _outcome(role, knobs, replay(trace, knobs), goal, middle)

    stock = outcome("stock", Knobs(STOCK))
    floor = outcome("floor", Knobs(FLOOR))
    oracle = outcome("oracle", Knobs(ORACLE, xi_tokens=goal.xi_tokens))
    first = trace.sliced(slice(0, middle))
    turns = growth(first)
    outcomes = [floor, oracle, stock]
    trials: list[Trial] = []
    if not stock.whole.met:
        trials = _trials(candidates, first, turns, goal, replay)
        if "t-lru" in candidates:
            typical = int(quantile(turns, 0.5))
            outcomes.append(outcome("naive", Knobs("t-lru", goal.xi_tokens, typical)))
        outcomes.append(outcome("best", _best(trials).knobs))
    return Advice(
        goal,
        capacity_blocks,
        int(quantile(turns, Q_HAT_QUANTILE)),
        len(turns),
        _verdict(floor, stock, outcomes[-1]),
        outcomes,
        trials,
    )


def _check(trace: Trace, candidates: Sequence[str]) -> None:
    if trace.requests < 2:
        raise ValueError(f"{trace.name}: advice needs at least 2 requests, this is 1")
    for name in candidates:
        if POLICIES[name].offline:
            raise ValueError(f"policy {name} knows the future: only online policies can be set")


def _trials(
    candidates: Sequence[str], first: Trace, turns: Int64, goal: Goal, replay: Replay
) -> list[Trial]:
    return [
        trial
        for policy in dict.fromkeys((STOCK, *candidates))
        for q_hat in _q_hats(policy, turns)
        for trial in search(policy, first, goal, q_hat, replay)
    ]


def growth(trace: Trace) -> Int64:
    """Per turn that follows another one: its prompt's tokens beyond all of the turn before.

    That is what T-LRU's q_hat stands for: it takes a conversation to come back with H + q_hat
    tokens, H being prompt and output. Less than nothing counts as nothing.
    """
    turn = np.flatnonzero(trace.previous != NONE)
    grown: Int64 = trace.prompt_tokens[turn] - trace.tokens[trace.previous[turn]]
    return grown.clip(min=0)


def most_replays(candidates: Sequence[str]) -> int:
    """How many replays `advise` takes at most."""
    searches = 0
    for name in candidates:
        if "xi_tokens" in POLICIES[name].parameters:
            searches += 1 if name == "t-lru" else 3
    return 6 + len(candidates) + searches * (len(GRID) + 2 * REFINEMENTS)


def search(policy: str, trace: Trace, goal: Goal, q_hat: int, replay: Replay) -> Sequence[Trial]:
    """Try a policy's parameters: over a grid first, then ever closer to the best.

    The grid is one of xi - q_hat, since a block's worth begins where H + q_hat exceeds xi.
    """
    parameters = POLICIES[policy].parameters

    def trial(apart: int) -> Trial:
        knobs = Knobs(
            policy,
            max(0, apart + q_hat) if "xi_tokens" in parameters else None,
            q_hat if "q_hat_tokens" in parameters else None,
        )
        result = replay(trace, knobs)
        return Trial(knobs, _score(goal, result, slice(None)))

    if "xi_tokens" not in parameters:
        return [trial(0)]
    tried: dict[int, Trial] = {}
    for apart in _grid(goal.xi_tokens, trace.block_tokens):
        tried[apart] = trial(apart)
    for _ in range(REFINEMENTS):
        for apart in _between(tried, trace.block_tokens):
            tried[apart] = trial(apart)
    return list(tried.values())


def _q_hats(policy: str, turns: Int64) -> list[int]:
    """What to try for q_hat.

    T-LRU keeps H + q_hat - xi tokens: only xi - q_hat counts, so that a search of xi with one q_hat
    is one of every pair. Its kin take q_hat for a scale of its own.
    """
    upper = int(quantile(turns, Q_HAT_QUANTILE))
    if policy == "t-lru" or "q_hat_tokens" not in POLICIES[policy].parameters:
        return [upper]
    mean = round(float(turns.mean())) if len(turns) else 0
    return sorted({int(quantile(turns, 0.5)), mean, upper})


def _best(trials: Sequence[Trial]) -> Trial:
    """The best of all; of equals, the middle one.

    Beyond either end of a stretch of equals things get worse. The stock order comes first.
    """
    least = min(trial.fitted.rank for trial in trials)
    equals = [trial for trial in trials if trial.fitted.rank == least]
    same = [trial for trial in equals if trial.knobs.policy == equals[0].knobs.policy]
    xis = [trial.knobs.xi_tokens or 0 for trial in same]
    middle = (min(xis) + max(xis)) / 2
    return min(same, key=lambda trial: abs((trial.knobs.xi_tokens or 0) - middle))


def _grid(unit: int, block_tokens: int) -> Iterator[int]:
    """Differences to begin with, whole blocks: less makes no difference."""
    blocks = {max(1, round(factor * unit / block_tokens)) for factor in GRID}
    return (block_tokens * count for count in sorted(blocks))


def _between(tried: dict[int, Trial], block_tokens: int) -> list[int]:
    """Half way from the best to its neighbours on either side, where that is something new."""
    order = sorted(tried)
    best = order.index(min(tried, key=lambda apart: tried[apart].fitted.rank))
    middles = []
    for neighbour in (best - 1, best + 1):
        if 0 <= neighbour < len(order):
            middle = (order[best] + order[neighbour]) // 2
            middles.append(middle // block_tokens * block_tokens)
    return [middle for middle in middles if middle not in tried]


def _outcome(role: str, knobs: Knobs, result: Result, goal: Goal, middle: int) -> Outcome:
    return Outcome(
        role,
        knobs,
        result,
        whole=_score(goal, result, slice(None)),
        first=_score(goal, result, slice(0, middle)),
        other=_score(goal, result, slice(middle, None)),
    )


def _score(goal: Goal, result: Result, part: slice) -> Score:
    prompt = result.prompt_tokens[part]
    seconds = result.first_token_seconds
    return score(
        goal,
        prompt - result.cached_tokens[part],
        prompt,
        None if seconds is None else seconds[part],
    )


def _verdict(floor: Outcome, stock: Outcome, best: Outcome) -> Verdict:
    if stock.whole.met:
        return Verdict.STOCK_MEETS_TARGET
    if not floor.whole.met:
        return Verdict.FLOOR_ABOVE_TARGET
    if best.other.rank >= stock.other.rank:
        return Verdict.NO_GAIN
    if best.other.met:
        return Verdict.REACHED
    return Verdict.REACHED_ONCE if best.first.met else Verdict.BETTER
