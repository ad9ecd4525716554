"""Measure every policy on the traces at hand, for docs/policies.md.

    python -m scripts.policy_figures [--check] [--agentic DIRECTORY]

The section of the Mooncake conversation trace, which this repository carries, is always made; with
--check it is compared instead. That of the agentic sessions is made where those are given; they are
public (kv-cache-tester), but not carried. Figures are written beside, in docs/figures.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from evictune_policies.algorithms.catalog import POLICIES
from evictune_policies.replay import yardsticks
from evictune_policies.replay.advise import Q_HAT_QUANTILE, growth
from evictune_policies.replay.console.progress import Progress
from evictune_policies.replay.console.session import Session
from evictune_policies.replay.console.table import count, share
from evictune_policies.replay.console.text import gap_closed
from evictune_policies.replay.knobs import combinations
from evictune_policies.replay.simulation.result import Result
from evictune_policies.replay.traces.assumptions import Assumptions
from evictune_policies.replay.traces.reading import read_trace
from evictune_policies.replay.traces.trace import Trace

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "policies.md"
FIGURES = ROOT / "docs" / "figures"
MOONCAKE = ROOT / "tests" / "data" / "traces" / "mooncake-conversation.jsonl.xz"
DRAWN = ("prefix-lru", "t-lru", "gdsf", "belady", "tail-belady", "infinite")
"""What the figures show: all of them would be a tangle."""


@dataclass(frozen=True)
class Study:
    """One section. The middle one of the capacities is told in full."""

    name: str
    capacities: tuple[int, int, int]
    xi_tokens: int


STUDIES = {
    "mooncake": Study("mooncake", (3_000, 10_000, 30_000), 16_384),
    "agentic": Study("agentic", (10_000, 20_000, 40_000), 16_384),
}


def main() -> int:
    """Returns the exit code: 1 when --check finds a difference."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    parser.add_argument(
        "--agentic", type=Path, metavar="DIRECTORY", help="kv-cache-tester's traces"
    )
    options = parser.parse_args()
    text = PAGE.read_text("utf-8")
    made = with_section(
        text, "mooncake", _section(STUDIES["mooncake"], read_trace(MOONCAKE), options)
    )
    if options.agentic:
        trace = read_trace(options.agentic, "kv-cache-tester", Assumptions(share_prompts=True))
        made = with_section(made, "agentic", _section(STUDIES["agentic"], trace, options))
    if not options.check:
        PAGE.write_text(made, "utf-8")
    elif made != text:
        print(f"{PAGE.name} is not what is measured: python -m scripts.policy_figures")
        return 1
    return 0


def with_section(page: str, name: str, section: str) -> str:
    """The page with what is between the marks of this name exchanged.

    Raises ValueError where the page has no such marks.
    """
    begin, end = f"<!-- measured: {name} -->", f"<!-- end: {name} -->"
    head, found, rest = page.partition(begin)
    _, closed, tail = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"the page has no section between {begin} and {end}")
    return f"{head}{begin}\n{section}\n{end}{tail}"


def _section(study: Study, trace: Trace, options: argparse.Namespace) -> str:
    from evictune_policies.replay.simulation.order import OrderReplay  # brings in the compiler

    q_hat = int(yardsticks.quantile(growth(trace), Q_HAT_QUANTILE))
    knobs = combinations(list(POLICIES), [study.xi_tokens], [q_hat])
    progress = Progress()
    with progress.over(len(knobs) * len(study.capacities)):
        session = Session(progress, OrderReplay)
        rows = [
            [session.replay(trace, each, capacity) for capacity in study.capacities]
            for each in knobs
        ]
    if not options.check:
        _draw(study, [result for row in rows for result in row])
    return f"xi {study.xi_tokens:,}, q_hat {q_hat:,}.\n\n{table(study, rows)}"


def table(study: Study, rows: Sequence[Sequence[Result]]) -> str:
    """A Markdown table: a row for each policy, with its results at the capacities."""
    middle = [row[1] for row in rows]
    xi = study.xi_tokens
    header = [
        "policy",
        *(f"{capacity:,}" for capacity in study.capacities),
        f"above {xi:,}",
        "TEL gap closed",
        "p25",
        "p50",
        "p95",
        "p99",
    ]
    lines = [header, ["---", *["---:"] * (len(header) - 1)]]
    for row in rows:
        result = row[1]
        lines.append(
            [
                f"`{result.policy}`",
                *(share(yardsticks.hit_ratio(each)) for each in row),
                share(yardsticks.share_above(result, xi)),
                share(gap_closed(result, middle, xi)),
                *(count(yardsticks.uncached_quantile(result, q)) for q in (0.25, 0.5, 0.95, 0.99)),
            ]
        )
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _draw(study: Study, results: Sequence[Result]) -> None:
    from evictune_policies.replay.console import pages
    from evictune_policies.replay.console.plots import curves_svg

    drawn = [result for result in results if result.policy in DRAWN]
    FIGURES.mkdir(exist_ok=True)
    svg = curves_svg(pages.over_capacity(drawn, [study.xi_tokens]))
    (FIGURES / f"policies-{study.name}.svg").write_text(svg, "utf-8")


if __name__ == "__main__":
    sys.exit(main())
