"""`python -m tests.perf`: what we cost, against peers measured in the same run, as ratios.

Writes a list of {name, peer, peer_value, our_value, ratio, bound, unit}, and exits 1 when a ratio
is above its bound. A goal, in the machine's own units, has none: it is told whether it was met.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.perf import bench_operator, bench_plugin, bench_replay

BENCHMARKS: dict[str, Callable[[], Iterator[dict[str, Any]]]] = {
    "plugin": bench_plugin.results,
    "replay": bench_replay.results,
    "operator": bench_operator.results,
}


def main() -> int:
    """Measure, tell, write."""
    parser = argparse.ArgumentParser(prog="python -m tests.perf", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}: all")
    parser.add_argument("--output", type=Path, default=Path("build/bench.json"))
    options = parser.parse_args()
    unknown = set(options.names) - set(BENCHMARKS)
    if unknown:
        parser.error(f"no benchmark {', '.join(sorted(unknown))}: one of {', '.join(BENCHMARKS)}")
    entries = []
    for name in options.names or BENCHMARKS:
        for entry in BENCHMARKS[name]():
            entries.append(entry)
            print(line(entry), flush=True)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(entries, indent=1, ensure_ascii=False) + "\n")
    return int(any(is_exceeded(entry) for entry in entries))


def is_exceeded(entry: dict[str, Any]) -> bool:
    """Whether we cost more than allowed."""
    return entry["bound"] is not None and bool(entry["ratio"] > entry["bound"])


def line(entry: dict[str, Any]) -> str:
    """One entry for a person."""
    if entry["bound"] is None:
        judged = "goal met" if entry["ratio"] <= 1 else "goal missed"
    else:
        judged = f"bound {entry['bound']}" + ("  EXCEEDED" if is_exceeded(entry) else "")
    return (
        f"{entry['name']:<44} {entry['peer_value']:>10,.2f} {entry['our_value']:>10,.2f} "
        f"{entry['unit']:<14} ratio {entry['ratio']:.3f}  {judged}"
    )


if __name__ == "__main__":
    sys.exit(main())
