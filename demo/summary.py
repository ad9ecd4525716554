"""The comparison of the two arms: build/demo/summary.json, the table, and the verdict."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from demo.constants import ENGINE, LOAD, MODEL, OBJECTIVE, RULE, Phase
from demo.record import Arm, Numbers, last_part, numbers, of_phase


@dataclass(frozen=True)
class Comparison:
    """One stretch of requests, served under stock LRU and by the loop."""

    phase: Phase
    part: str
    lru: Numbers
    loop: Numbers


@dataclass(frozen=True)
class Claim:
    """One clause of the rule, and whether it came true."""

    text: str
    holds: bool


@dataclass(frozen=True)
class Summary:
    """Everything that summary.json, the table and the report show."""

    threshold: float
    lru: Arm
    loop: Arm
    comparisons: tuple[Comparison, ...]
    claims: tuple[Claim, ...]
    facts: dict[str, Any]

    @property
    def better(self) -> bool:
        """Whether every clause of the rule holds."""
        return all(claim.holds for claim in self.claims)


def summarise(lru: Arm, loop: Arm, threshold: float, facts: dict[str, Any]) -> Summary:
    """Compare two arms of the same requests; threshold: the target in seconds.

    Raises ValueError when the arms were not the same load: nothing could be compared then.
    """
    both = [o.request for o in loop.outcomes if o.request.phase != LOAD.encore.name]
    if [o.request for o in lru.outcomes] != both:
        raise ValueError("the two arms were not given the same requests in the same order")
    present = {outcome.request.phase for outcome in lru.outcomes}
    comparisons: list[Comparison] = []
    claims: list[Claim] = []
    for phase in LOAD.phases:
        if phase.counted and phase.name in present:
            whole, steady = _compare(phase, lru, loop)
            comparisons += [whole, steady]
            claims += _claims(whole, steady)
    return Summary(threshold, lru, loop, tuple(comparisons), tuple(claims), facts)


def _compare(phase: Phase, lru: Arm, loop: Arm) -> tuple[Comparison, Comparison]:
    stock, closed = of_phase(lru.outcomes, phase.name), of_phase(loop.outcomes, phase.name)
    share = RULE.steady_share
    return (
        Comparison(phase, "whole phase", numbers(stock), numbers(closed)),
        Comparison(
            phase,
            f"last {share:.0%}",
            numbers(last_part(stock, share)),
            numbers(last_part(closed, share)),
        ),
    )


def _claims(whole: Comparison, steady: Comparison) -> list[Claim]:
    title = whole.phase.title
    limit = (1 - RULE.margin) * steady.lru.uncached_p99
    return [
        Claim(
            f"{title}, {steady.part}: uncached tokens p99 at least {RULE.margin:.0%} lower "
            f"({steady.lru.uncached_p99:,} -> {steady.loop.uncached_p99:,})",
            steady.loop.uncached_p99 <= limit,
        ),
        Claim(
            f"{title}, {steady.part}: time to first token p99 lower "
            f"({_ms(steady.lru.ttft_p99)} -> {_ms(steady.loop.ttft_p99)})",
            steady.loop.ttft_p99 < steady.lru.ttft_p99,
        ),
        Claim(
            f"{title}, whole phase, search included: fewer uncached tokens "
            f"({whole.lru.uncached_total:,} -> {whole.loop.uncached_total:,})",
            whole.loop.uncached_total < whole.lru.uncached_total,
        ),
    ]


def write_json(summary: Summary, path: Path) -> None:
    """Write summary.json; times in seconds, tokens as counts."""
    path.write_text(json.dumps(to_json(summary), indent=2) + "\n")


def to_json(summary: Summary) -> dict[str, Any]:
    """The summary as plain values."""
    return {
        "better": summary.better,
        "claims": [asdict(claim) for claim in summary.claims],
        "threshold_seconds": summary.threshold,
        "phases": [
            {
                "phase": comparison.phase.name,
                "title": comparison.phase.title,
                "part": comparison.part,
                "lru": asdict(comparison.lru),
                "loop": asdict(comparison.loop),
            }
            for comparison in summary.comparisons
        ],
        "steps": [asdict(step) for step in summary.loop.steps],
        "facts": summary.facts,
        "constants": {
            "model": asdict(MODEL),
            "engine": asdict(ENGINE),
            "load": asdict(LOAD),
            "objective": asdict(OBJECTIVE),
            "rule": asdict(RULE),
        },
    }


HEADER = ("", "", "TTFT p50", "p95", "p99", "uncached p50", "p95", "p99", "hit ratio")


def rows(comparisons: Sequence[Comparison]) -> list[tuple[str, ...]]:
    """The table's rows under HEADER: stock LRU, the loop, and the change, for every stretch."""
    table: list[tuple[str, ...]] = []
    for comparison in comparisons:
        stretch = f"{comparison.phase.title}, {comparison.part}"
        table.append((stretch, "stock LRU", *_cells(comparison.lru)))
        table.append(("", "the loop", *_cells(comparison.loop)))
        table.append(("", "change", *_changes(comparison)))
    return table


def text_table(comparisons: Sequence[Comparison]) -> str:
    """The table for a terminal: words to the left, figures to the right."""
    table = [HEADER, *rows(comparisons)]
    widths = [max(len(row[column]) for row in table) for column in range(len(HEADER))]
    lines = []
    for row in table:
        cells = [
            cell.ljust(width) if column < 2 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    lines.insert(1, "-" * max(map(len, lines)))
    return "\n".join(lines)


def _cells(figures: Numbers) -> tuple[str, ...]:
    return (
        _ms(figures.ttft_p50),
        _ms(figures.ttft_p95),
        _ms(figures.ttft_p99),
        f"{figures.uncached_p50:,}",
        f"{figures.uncached_p95:,}",
        f"{figures.uncached_p99:,}",
        f"{figures.hit_ratio:.2f}",
    )


def _changes(comparison: Comparison) -> tuple[str, ...]:
    names = ("ttft_p50", "ttft_p95", "ttft_p99", "uncached_p50", "uncached_p95", "uncached_p99")
    changes = []
    for name in names:
        before, after = getattr(comparison.lru, name), getattr(comparison.loop, name)
        changes.append(_percent(after / before - 1) if before else "")
    return (*changes, f"{comparison.loop.hit_ratio - comparison.lru.hit_ratio:+.2f}")


def _percent(change: float) -> str:
    rounded = f"{change:+.0%}"
    return "0%" if rounded in ("+0%", "-0%") else rounded


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms"
