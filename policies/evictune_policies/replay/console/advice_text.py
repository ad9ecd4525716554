"""The advice in words: the verdict, what stands behind it, and what the bounds bound."""

from __future__ import annotations

import json
import textwrap

from evictune_policies.replay.advise import Advice, Outcome, Verdict
from evictune_policies.replay.console.table import count, duration, share, table
from evictune_policies.replay.goal import Goal, Score
from evictune_policies.replay.knobs import Knobs

HEADER = (
    "", "policy", "xi", "q_hat", "late", "first half", "other half", "TEL", "TTFT", "p25", "p50",
)  # fmt: skip
ROLES = {
    "floor": "floor",
    "oracle": "bound of TEL",
    "stock": "in use today",
    "naive": "xi of the target",
    "best": "best found",
}
WIDTH = 100
UNHELPFUL = (
    "More KV cache would not help either. A faster or shorter prefill would, or another target."
)


def target(goal: Goal) -> str:
    """The goal in a line."""
    return (
        f"target: {percentile(goal)} of the time to first token at most "
        f"{duration(goal.slo_seconds)}, that is {goal.xi_tokens:,} uncached tokens"
    )


def percentile(goal: Goal) -> str:
    """p99 for 0.99."""
    return f"p{100 * goal.quantile:.10g}"


def verdict(advice: Advice) -> list[str]:
    """What the advice comes to: the first line says it, the others explain."""
    stock, best = _present(advice, "stock"), advice.outcome("best")
    lines = [_headline(advice, stock, best)]
    floor = _present(advice, "floor").whole
    if advice.verdict in (Verdict.REACHED_ONCE, Verdict.BETTER, Verdict.NO_GAIN):
        lines.append(
            "The floor does not rule the target out: if nothing were ever evicted, "
            f"{_late(floor)} would be late; {floor.allowed:,} may be."
        )
    if advice.verdict is Verdict.FLOOR_ABOVE_TARGET:
        lines.append(
            f"With a cache that never evicts, the {percentile(advice.goal)} is "
            f"{duration(floor.seconds)}. {UNHELPFUL}"
        )
    if best is not None:
        lines += _about(advice, stock, best)
    return lines + _few(advice.goal, stock.other)


def _few(goal: Goal, half: Score) -> list[str]:
    """A word of caution where a quantile is the slowest request."""
    if half.allowed:
        return []
    return [
        f"Few requests: of the {half.requests:,} of a half the {percentile(goal)} is the slowest, "
        f"and one late request decides. Give at least {2 * goal.fewest:,}, better many times that."
    ]


def _headline(advice: Advice, stock: Outcome, best: Outcome | None) -> str:
    if advice.verdict is Verdict.FLOOR_ABOVE_TARGET:
        floor = _present(advice, "floor").whole
        return (
            "Eviction is not your problem: no eviction policy can reach the target. "
            f"{_late(floor)} would be late even if nothing were ever evicted; "
            f"{floor.allowed:,} may be."
        )
    if best is None:
        return (
            "Eviction is not your problem: the engine's own order meets the target. "
            f"{_late(stock.whole)} are late; {stock.whole.allowed:,} may be."
        )
    after = f"{_late(best.other)} are late on the half it was not fitted on"
    said = {
        Verdict.REACHED: f"The target can be reached: set {best.knobs}. {after}",
        Verdict.REACHED_ONCE: f"Reached where it was fitted, not elsewhere: {best.knobs}. {after}",
        Verdict.BETTER: f"Better, but not enough: {best.knobs}. {after}",
        Verdict.NO_GAIN: "Stay with the engine's own order: what was fitted on the first half does "
        f"not do better on the other. With {best.knobs}, {after}",
    }
    return f"{said[advice.verdict]}; {best.other.allowed:,} may be."


def _about(advice: Advice, stock: Outcome, best: Outcome) -> list[str]:
    if best.knobs.policy == stock.knobs.policy:
        return ["No candidate did better than the engine's own order where it was fitted."]
    lines = [
        f"{best.knobs}, against the engine's own order. Late: {_change(stock, best, 'first')} on "
        f"the first half, where it was fitted; {_change(stock, best, 'other')} on the other."
        + ("" if advice.gain else " So it does not hold: stay with the engine's own order."),
        _median(advice.goal, stock.other, best.other),
    ]
    lines += _oracle(advice, stock, best)
    lines += _naive(advice, stock, best)
    if best.knobs.policy == "t-lru":
        assert best.knobs.xi_tokens is not None
        assert best.knobs.q_hat_tokens is not None
        apart = best.knobs.xi_tokens - best.knobs.q_hat_tokens
        lines.append(
            f"Of xi and q_hat only the difference counts, {apart:,} here, which is "
            f"{apart / max(1, advice.goal.xi_tokens):.2f} of the target's {advice.goal.xi_tokens:,}"
            f". q_hat {advice.q_hat_tokens:,}: nine turns in ten grow by no more "
            f"({advice.turns:,} turns of the first half)."
        )
    if best.knobs.policy not in PLUGIN:
        lines.append(f"The engine plugin has no {best.knobs.policy}: this is a comparison only.")
    elif advice.gain:
        lines.append(f"In the knob document: {json.dumps(knob_document(best.knobs))}")
    return lines


PLUGIN = ("prefix-lru", "t-lru")


def knob_document(knobs: Knobs) -> dict[str, str | int | None]:
    """The entry of the engine plugin's knob document that puts these in force."""
    return {
        "policy": knobs.policy,
        "xiTokens": knobs.xi_tokens,
        "qHatTokens": knobs.q_hat_tokens,
    }


def _change(stock: Outcome, best: Outcome, part: str) -> str:
    before, after = getattr(stock, part), getattr(best, part)
    return f"{before.late:,} -> {after.late:,} of {after.requests:,}"


def _median(goal: Goal, stock: Score, best: Score) -> str:
    """What the candidate costs those who are in time anyway."""
    parts = [
        f"{name} {before:,} -> {after:,} uncached tokens"
        for name, before, after in (("p25", stock.p25, best.p25), ("p50", stock.p50, best.p50))
    ]
    linear = goal.cost.linear * (best.p50 - stock.p50)
    cost = f" (the median waits {duration(linear)} longer)" if linear > 0 else ""
    return f"Cost to the median, on the other half: {', '.join(parts)}{cost}."


def _oracle(advice: Advice, stock: Outcome, best: Outcome) -> list[str]:
    oracle = _present(advice, "oracle")
    gap = stock.whole.excess_tokens - oracle.whole.excess_tokens
    if gap <= 0:
        return ["TEL is as low as it can be: tail-optimal Belady has no less."]
    closed = (stock.whole.excess_tokens - best.whole.excess_tokens) / gap
    met = "would meet the target" if oracle.whole.met else "would miss the target as well"
    return [
        f"Of the TEL between the engine's own order and the least possible it saves "
        f"{share(closed)}. The least is that of tail-optimal Belady, which knows the requests to "
        f"come; it {met}, with {_late(oracle.whole)} late."
    ]


def _naive(advice: Advice, stock: Outcome, best: Outcome) -> list[str]:
    naive = advice.outcome("naive")
    if naive is None:
        return []
    if naive.other.rank < best.other.rank:
        return [
            f"The target's own xi, {naive.knobs}, did better on the half that was not fitted on "
            f"({_change(best, naive, 'other')}): the trace's halves differ."
        ]
    if naive.whole.late <= best.whole.late:
        return []
    line = f"Not the target's own xi: with {naive.knobs}, {_late(naive.whole)} are late"
    if naive.other.late > stock.other.late and (
        naive.other.excess_tokens < stock.other.excess_tokens
    ):
        line += (
            f"; on the other half more than without it ({_change(stock, naive, 'other')}), "
            "although TEL is lower: users whose turn grows by more than q_hat come back just "
            "above xi"
        )
    return [f"{line}."]


def notes(advice: Advice) -> list[str]:
    """What the figures mean, and what the bounds do not bound."""
    xi = advice.goal.xi_tokens
    lines = [
        "late: the share of requests whose prefill takes longer than the target. TEL: uncached "
        f"tokens above {xi:,}, summed. TTFT: the {percentile(advice.goal)} of the prefill times. "
        "p25, p50: uncached tokens. All of the whole trace, but where a half is named.",
        "The floor, a cache that never evicts, bounds every request's uncached tokens from below; "
        "its time to first token only as long as nobody has to queue.",
        f"Tail-optimal Belady bounds TEL at one xi, here {xi:,}, to within a block a request. It "
        "does not bound a quantile, nor the number of late requests.",
        "One request at a time, and prefill times alone: queueing and requests that overlap are "
        "left out.",
    ]
    if advice.goal.cost.quadratic:
        lines.append(
            f"{xi:,} tokens are what can be computed in time from nothing; after a long cached "
            "prefix it is less. Late requests are told by their own times."
        )
    return lines


def rows(advice: Advice) -> list[list[str]]:
    """One line for each outcome, in the columns of HEADER."""
    return [_row(outcome) for outcome in advice.outcomes]


def _row(outcome: Outcome) -> list[str]:
    whole = outcome.whole
    return [
        ROLES[outcome.role],
        outcome.knobs.policy,
        count(outcome.knobs.xi_tokens),
        count(outcome.knobs.q_hat_tokens),
        share(whole.late / whole.requests),
        share(outcome.first.late / outcome.first.requests),
        share(outcome.other.late / outcome.other.requests),
        count(whole.excess_tokens),
        duration(whole.seconds),
        count(whole.p25),
        count(whole.p50),
    ]


def told(advice: Advice) -> str:
    """All of it for a terminal."""
    headline, *others = verdict(advice)
    paragraphs = [
        _wrapped(headline),
        *(_wrapped(line, "- ") for line in others),
        "",
        table(HEADER, rows(advice), left=2),
        "",
        *(_wrapped(line, "* ") for line in notes(advice)),
    ]
    return "\n".join(paragraphs)


def _wrapped(line: str, bullet: str = "") -> str:
    indent = " " * len(bullet)
    return textwrap.fill(
        line, WIDTH, initial_indent=bullet, subsequent_indent=indent,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def _late(score: Score) -> str:
    return f"{score.late:,} of {score.requests:,} requests ({share(score.late / score.requests)})"


def _present(advice: Advice, role: str) -> Outcome:
    outcome = advice.outcome(role)
    assert outcome is not None, role
    return outcome
