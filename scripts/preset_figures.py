"""Measure what the presets rest on, for docs/how-to/presets.md.

    python -m scripts.preset_figures [--check] [--agentic DIRECTORY]

A table of xi for each trace: what T-LRU does to the median and to the tail. That of the Mooncake
conversation trace, which this repository carries, is always made; with --check it is compared
instead. That of the agentic sessions is made where those are given; they are public
(kv-cache-tester), but not carried.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from evictune_policies.replay import yardsticks
from evictune_policies.replay.advise import FLOOR, STOCK, growth
from evictune_policies.replay.console.progress import Progress
from evictune_policies.replay.console.session import Session
from evictune_policies.replay.console.table import count, share
from evictune_policies.replay.knobs import Knobs
from evictune_policies.replay.simulation.result import Result
from evictune_policies.replay.traces.assumptions import Assumptions
from evictune_policies.replay.traces.reading import read_trace
from evictune_policies.replay.traces.trace import Trace

from scripts.policy_figures import MOONCAKE, ROOT, with_section

PAGE = ROOT / "docs" / "how-to" / "presets.md"
QUANTILES = (0.5, 0.9, 0.95, 0.99)


@dataclass(frozen=True)
class Study:
    """One trace: q_hat is the preset's lower bound, which is what the operator sets."""

    capacity: int
    q_hat_tokens: int
    xis: tuple[int, ...]


STUDIES = {
    "mooncake": Study(10_000, 200, (2_048, 4_096, 8_192, 16_384, 32_768, 65_536)),
    "agentic": Study(20_000, 500, (4_096, 16_384, 32_768, 65_536, 131_072)),
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
    made = with_section(text, "mooncake", section(STUDIES["mooncake"], read_trace(MOONCAKE)))
    if options.agentic:
        trace = read_trace(options.agentic, "kv-cache-tester", Assumptions(share_prompts=True))
        made = with_section(made, "agentic", section(STUDIES["agentic"], trace))
    if not options.check:
        PAGE.write_text(made, "utf-8")
    elif made != text:
        print(f"{PAGE.name} is not what is measured: python -m scripts.preset_figures")
        return 1
    return 0


def section(study: Study, trace: Trace) -> str:
    """The traffic in a sentence, and a row for each xi."""
    from evictune_policies.replay.simulation.order import OrderReplay  # brings in the compiler

    knobs = [Knobs(STOCK), *(Knobs("t-lru", xi, study.q_hat_tokens) for xi in study.xis)]
    knobs.append(Knobs(FLOOR))
    progress = Progress()
    with progress.over(len(knobs)):
        session = Session(progress, OrderReplay)
        results = [session.replay(trace, each, study.capacity) for each in knobs]
    return "\n".join([*_traffic(study, trace), "", *_rows(results)])


def _traffic(study: Study, trace: Trace) -> Iterator[str]:
    turns = growth(trace)
    prompts, grown = (
        ", ".join(count(int(yardsticks.quantile(values, q))) for q in QUANTILES)
        for values in (trace.prompt_tokens, turns)
    )
    yield f"{trace.requests:,} requests, {len(turns):,} of them later turns of a conversation;"
    yield f"p50, p90, p95 and p99 of a prompt {prompts} tokens, of a turn's growth {grown}."
    yield f"{study.capacity:,} blocks of {trace.block_tokens} tokens, q_hat {study.q_hat_tokens:,}."


def _rows(results: list[Result]) -> Iterator[str]:
    yield "| order of eviction | hit ratio | p50 | p90 | p95 | p99 |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: |"
    names = {STOCK: "stock LRU", FLOOR: "nothing evicted"}
    for result in results:
        name = names.get(result.policy) or f"T-LRU, xi {result.xi_tokens:,}"
        cells = [count(yardsticks.uncached_quantile(result, q)) for q in QUANTILES]
        yield f"| {' | '.join([name, share(yardsticks.hit_ratio(result)), *cells])} |"


if __name__ == "__main__":
    sys.exit(main())
