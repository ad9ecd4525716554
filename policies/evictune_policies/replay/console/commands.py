"""What the commands do: read, replay, and say it as text, as JSON and as a page."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from evictune_policies.replay import curve as curves
from evictune_policies.replay.advise import Advice, Outcome, advise, most_replays
from evictune_policies.replay.console import advice_text, text
from evictune_policies.replay.console.progress import Progress
from evictune_policies.replay.console.record import record
from evictune_policies.replay.console.session import Session, preparation, read
from evictune_policies.replay.curve import Curve
from evictune_policies.replay.goal import Goal
from evictune_policies.replay.knobs import Knobs, combinations
from evictune_policies.replay.simulation.result import Result
from evictune_policies.replay.traces.trace import Trace


def compare(options: argparse.Namespace) -> None:
    """Every policy with every parameter at every capacity."""
    knobs = combinations(options.policies, options.xi, options.qhat)
    page, progress = page_of(options), Progress()
    trace = read(options, progress)
    with progress.over(len(knobs) * len(options.capacity)):
        session = Session(progress, preparation(options), options.prefill)
        results = [
            session.replay(trace, each, capacity) for capacity in options.capacity for each in knobs
        ]
    if page:
        from evictune_policies.replay.console import pages, report

        report.write(pages.comparison(trace, results, options.xi), page)
    if options.json:
        print_json(record(result, options.xi) for result in results)
    else:
        print(f"{text.heading(trace)}\n\n{text.comparison(trace, results, options.xi)}")


def curve(options: argparse.Namespace) -> None:
    """Every policy over capacities, or over multiples of the load."""
    knobs = combinations(options.policies, options.xi, options.qhat)
    page, progress = page_of(options), Progress()
    trace = read(options, progress)

    def over_capacity(session: Session, each: Knobs) -> Curve:
        return curves.over_capacity(sizes, lambda size: session.replay(trace, each, size))

    def over_load(session: Session, each: Knobs) -> Curve:
        return curves.over_load(loads, lambda part: session.replay(part, each, sizes[0]))

    timed = options.fidelity == "timed"
    if options.over == "load":
        if len(options.capacity) != 1:
            raise ValueError("--capacity: over load it takes one: write --capacity 10000")
        sizes = list(options.capacity)
        loads = list(curves.loaded(trace, options.load, "sped up" if timed else "superposed"))
    else:
        sizes, loads = list(options.capacity) or curves.capacities(trace), []
    with progress.over(len(knobs) * (len(loads) or len(sizes))):
        session = Session(progress, preparation(options), options.prefill)
        draw = over_load if loads else over_capacity
        drawn = [(each, draw(session, each)) for each in knobs]
    if page:
        from evictune_policies.replay.console import pages, report

        report.write(pages.curve(trace, drawn, options.xi), page)
    if options.json:
        print_json(
            _curve_record(at, result, options)
            for _, line in drawn
            for at, result in zip(line.x, line.results, strict=True)
        )
    else:
        print(f"{text.heading(trace)}\n\n{text.curve(drawn, options.xi)}")


def _curve_record(at: float, result: Result, options: argparse.Namespace) -> dict[str, Any]:
    """As of any replay; over load with the load."""
    load = {"load": at} if options.over == "load" else {}
    return {**record(result, options.xi), **load}


def advice(options: argparse.Namespace) -> None:
    """Which policy and which parameters, and whether any can help."""
    goal = Goal(options.slo, options.quantile, options.prefill)
    page, progress = page_of(options), Progress()
    trace = read(options, progress)
    with progress.over(most_replays(options.policies)):
        session = Session(progress, preparation(options), options.prefill)

        def replay(part: Trace, knobs: Knobs) -> Result:
            return session.replay(part, knobs, options.capacity)

        advised = advise(trace, options.capacity, goal, replay, options.policies)
    if page:
        from evictune_policies.replay.console import pages, report

        report.write(pages.advice(trace, advised), page)
    if options.json:
        print_json(_advice_record(advised, outcome) for outcome in advised.outcomes)
    else:
        capacity = text.capacity(advised.outcomes[0].result)
        lines = [
            text.heading(trace),
            capacity,
            advice_text.target(goal),
            "",
            advice_text.told(advised),
        ]
        print("\n".join(lines))


def _advice_record(advised: Advice, outcome: Outcome) -> dict[str, Any]:
    """As of any replay, and what became of it in this role."""
    goal = advised.goal
    parts = {"whole": outcome.whole, "fitted": outcome.first, "other": outcome.other}
    return {
        **record(outcome.result, [goal.xi_tokens]),
        "advice": {
            "role": outcome.role,
            "verdict": advised.verdict.value,
            "slo_seconds": goal.slo_seconds,
            "quantile": goal.quantile,
            "xi_tokens": goal.xi_tokens,
            "halves": {
                name: {
                    "requests": part.requests,
                    "late": part.late,
                    "allowed": part.allowed,
                    "met": part.met,
                    "tel_tokens": part.excess_tokens,
                    "seconds": part.seconds,
                    "p25": part.p25,
                    "p50": part.p50,
                }
                for name, part in parts.items()
            },
        },
    }


def convert(options: argparse.Namespace) -> None:
    """Write the trace as a request log, and say what was read and repaired."""
    progress = Progress()
    trace = read(options, progress)
    with progress.over():
        progress.step(f"writing {options.output}")
        from evictune_policies.replay.traces import native

        native.convert(trace, Path(options.output))
    print(f"{text.heading(trace)}\nwritten to {options.output}")


def page_of(options: argparse.Namespace) -> Path | None:
    """Where the report is to be written. ValueError, before the work, where it cannot be."""
    if options.html is None:
        return None
    path = Path(options.html)
    if not path.parent.is_dir():
        raise ValueError(f"--html: {path.parent} is no directory: make it first")
    if path.is_dir():
        raise ValueError(f"--html: {path} is a directory: name a file in it")
    return path


def print_json(objects: Iterable[dict[str, Any]]) -> None:
    """One array, an object a line."""
    lines = ",\n ".join(json.dumps(each, allow_nan=False) for each in objects)
    print(f"[{lines}]")
