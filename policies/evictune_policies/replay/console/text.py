"""What `compare` and `curve` print for a person."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from statistics import median

from evictune_policies.replay import yardsticks
from evictune_policies.replay.console.record import QUANTILES
from evictune_policies.replay.console.table import count, duration, folded, share, table
from evictune_policies.replay.curve import Curve
from evictune_policies.replay.knobs import Knobs
from evictune_policies.replay.simulation.requests import unknown_tokens
from evictune_policies.replay.simulation.result import Int64, Result
from evictune_policies.replay.traces.trace import Trace

STOCK, TAIL_BOUND = "prefix-lru", "tail-belady"

NAMES, TAIL = 3, 3
"""Columns that say which replay a line is of, and columns for each xi."""
MANY = 8
"""Tenants that are too many to be named in a terminal."""
TEL = (
    "requests above so many uncached tokens, what lies above, summed (TEL), and the part saved of "
    "the TEL\nbetween prefix-lru and tail-belady, where both are replayed"
)
AGES = "how long blocks had been left alone, at most, when they were found and when evicted"

FIDELITY = {
    "order": "one request at a time; what overlapping requests do to each other is left out",
    "timed": "requests overlap, wait for each other and preempt each other",
}


def heading(trace: Trace) -> str:
    """What was replayed, and what had to be repaired in it."""
    span = float(trace.arrival[-1]) if trace.requests else 0.0
    lines = [
        f"{trace.name}: {trace.requests:,} requests over {duration(span)}, "
        f"blocks of {trace.block_tokens:,} tokens"
    ]
    lines += [f"repaired: {what}: {times:,}" for what, times in trace.repairs.items() if times]
    unknown = unknown_tokens(trace)
    if unknown:
        lines.append(
            f"not said: what {unknown:,} tokens are, outputs for the most part; a next turn that "
            "would find them in an engine finds nothing here"
        )
    return "\n".join(lines)


def comparison(trace: Trace, results: Sequence[Result], xis: Sequence[int]) -> str:
    """For each capacity the yardsticks, the ages of blocks, and who got how much of the cache."""
    tables = "\n\n".join(
        f"{capacity(group[0])}\n\n{_comparison(trace, group, xis)}"
        for group in by_capacity(results)
    )
    return f"{tables}\n\n{fidelity(results[0])}"


def by_capacity(results: Sequence[Result]) -> list[list[Result]]:
    """The results of each capacity, ascending."""
    ordered = sorted(results, key=lambda result: result.capacity_blocks)
    return [list(group) for _, group in groupby(ordered, lambda r: r.capacity_blocks)]


def capacity(result: Result) -> str:
    """In blocks and tokens."""
    tokens = result.capacity_blocks * result.block_tokens
    return f"{result.capacity_blocks:,} blocks, {tokens:,} tokens"


def fidelity(result: Result) -> str:
    """The fidelity, and what it means."""
    return f"{result.fidelity}: {FIDELITY[result.fidelity]}"


def _comparison(trace: Trace, group: Sequence[Result], xis: Sequence[int]) -> str:
    tables = [table(columns(()), rows(group, ()))]
    if xis:
        tables.append(f"{TEL}\n{folded(*_tail(group, xis), keep=NAMES, step=TAIL)}")
    tables.append(f"{AGES}\n{table(*ages(group))}")
    header, shares = tenants(trace, group)
    if len(trace.tenants) > MANY:
        header, shares = _tenants_summed_up(trace, group)
    if shares:
        title = "cached, of each tenant's prompt tokens"
        tables.append(f"{title}\n{folded(header, shares, keep=NAMES)}")
    return "\n\n".join(tables)


def _tail(group: Sequence[Result], xis: Sequence[int]) -> tuple[list[str], list[list[str]]]:
    """The columns that there are for each xi."""
    whole, cells = columns(xis), rows(group, xis)
    end = len(whole) - 1
    chosen = [*range(NAMES), *range(end - TAIL * len(xis), end)]
    return [whole[i] for i in chosen], [[row[i] for i in chosen] for row in cells]


def ages(group: Sequence[Result]) -> tuple[list[str], list[list[str]]]:
    """How long blocks had been left alone when they were found, and when they were evicted."""
    header = ["policy", "xi", "q_hat"]
    header += ["found: half", "nine in ten", "evicted: half", "nine in ten"]
    return header, [
        [
            *_named(result),
            *(_age(age, q) for age in (result.hit_age, result.eviction_age) for q in (0.5, 0.9)),
        ]
        for result in group
    ]


def _age(histogram: Int64, q: float) -> str:
    """The bin's upper end."""
    found = yardsticks.age_quantile(histogram, q)
    return "" if found is None else duration(found[1])


def tenants(trace: Trace, group: Sequence[Result]) -> tuple[list[str], list[list[str]]]:
    """Of each tenant's prompt tokens those that were cached; no rows where there is one tenant."""
    header = ["policy", "xi", "q_hat", *trace.tenants]
    if len(trace.tenants) < 2:
        return header, []
    return header, [
        [
            *_named(result),
            *(
                share(tenant.cached_ratio)
                for tenant in yardsticks.tenant_shares(result, trace.tenant, trace.tenants)
            ),
        ]
        for result in group
    ]


def _tenants_summed_up(trace: Trace, group: Sequence[Result]) -> tuple[list[str], list[list[str]]]:
    """Where there are too many to name: the one with the least, the middle one, that with most."""
    header = ["policy", "xi", "q_hat", f"least of {len(trace.tenants)}", "median", "most"]
    rows = []
    for result in group:
        shares = yardsticks.tenant_shares(result, trace.tenant, trace.tenants)
        ratios = sorted(tenant.cached_ratio for tenant in shares)
        told = (ratios[0], median(ratios), ratios[-1])
        rows.append([*_named(result), *map(share, told)])
    return header, rows


def _named(result: Result) -> list[str]:
    return [result.policy, count(result.xi_tokens), count(result.q_hat_tokens)]


def columns(xis: Sequence[int]) -> list[str]:
    """The header of `rows`."""
    first, *others = QUANTILES
    header = ["policy", "xi", "q_hat", "hit ratio", f"uncached {first}", *others, "mean"]
    for xi in xis:
        header += [f"above {xi:,}", "TEL", "of gap"]
    return [*header, "recomputed"]


def rows(group: Sequence[Result], xis: Sequence[int]) -> list[list[str]]:
    """A line for each of these results, which are of one capacity."""
    return [_row(result, group, xis) for result in group]


def _row(result: Result, group: Sequence[Result], xis: Sequence[int]) -> list[str]:
    quantiles = [yardsticks.uncached_quantile(result, q) for q in QUANTILES.values()]
    cells = [
        *_named(result),
        share(yardsticks.hit_ratio(result)),
        *map(count, quantiles),
        count(yardsticks.uncached_mean(result)),
    ]
    for xi in xis:
        cells += [
            share(yardsticks.share_above(result, xi)),
            count(yardsticks.tel(result, xi)),
            share(gap_closed(result, group, xi)),
        ]
    return [*cells, count(result.recomputed_tokens)]


def curve(drawn: Sequence[tuple[Knobs, Curve]], xis: Sequence[int]) -> str:
    """A table for each policy, and its knee."""
    tables = "\n\n".join(
        f"{knobs}\n\n{folded(*points(line, xis), left=0, keep=4, step=2)}\n{knee(line)}"
        for knobs, line in drawn
    )
    return f"{tables}\n\n{fidelity(drawn[0][1].results[0])}"


def points(line: Curve, xis: Sequence[int]) -> tuple[list[str], list[list[str]]]:
    """A curve's header and rows."""
    header = ["blocks" if line.over == "capacity" else "load", "hit ratio", "uncached p50", "p99"]
    for xi in xis:
        header += [f"above {xi:,}", "TEL"]
    rows = []
    for at, result in zip(line.x, line.results, strict=True):
        quantiles = [yardsticks.uncached_quantile(result, q) for q in (0.5, 0.99)]
        row = [f"{at:,g}" if line.over == "load" else count(at)]
        row += [share(yardsticks.hit_ratio(result)), *map(count, quantiles)]
        for xi in xis:
            row += [share(yardsticks.share_above(result, xi)), count(yardsticks.tel(result, xi))]
        rows.append(row)
    return header, rows


def knee(line: Curve) -> str:
    """Where the hit ratio's curve bends, if it does."""
    found = line.knee
    if found is None:
        return "no knee: the curve is too straight, or has too few points"
    at = f"{found.x:,.0f} blocks" if line.over == "capacity" else f"load {found.x:g}"
    return f"knee at {at}: the hit ratio, {share(found.y)}, {found.shape.value}"


def gap_closed(result: Result, group: Sequence[Result], xi: int) -> float | None:
    """Of the TEL between stock LRU and the least possible; None where those were not replayed."""
    stock = [r for r in group if r.policy == STOCK]
    bound = [r for r in group if r.policy == TAIL_BOUND and r.xi_tokens == xi]
    if not stock or not bound:
        return None
    return yardsticks.tel_gap_closed(result, stock[0], bound[0], xi)
