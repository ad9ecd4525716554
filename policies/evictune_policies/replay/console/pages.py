"""What the reports show: the same figures as the tables, and plots."""

from __future__ import annotations

from collections.abc import Sequence

from evictune_policies.replay import yardsticks
from evictune_policies.replay.advise import Advice, Verdict
from evictune_policies.replay.console import advice_text, text
from evictune_policies.replay.console.plots import Panel, Series, curves_svg, tails_svg
from evictune_policies.replay.console.report import Page, Section
from evictune_policies.replay.console.table import duration
from evictune_policies.replay.curve import Curve
from evictune_policies.replay.knobs import Knobs, knobs_of
from evictune_policies.replay.simulation.result import Result
from evictune_policies.replay.traces.trace import Trace

MOODS = {
    Verdict.REACHED: "good",
    Verdict.REACHED_ONCE: "even",
    Verdict.BETTER: "even",
    Verdict.STOCK_MEETS_TARGET: "good",
}
TAIL_NOTE = (
    "Both axes are logarithmic: a point says which share of the requests has more uncached prompt "
    "tokens than that."
)
AGES = (
    "How long since a request last held it a block was found, and evicted, to within a factor of "
    "two. Where the two come close, reuse is being lost."
)
TENANTS = "Of each tenant's prompt tokens, those that were cached."
CURVE_NOTE = "A line ends where nothing is lost any more: more capacity changes nothing."
LEGEND = (
    "Uncached: quantiles of the requests' prompt tokens that had to be computed. Above: the share "
    "of requests with more. TEL: what lies above, summed over the requests; of gap: the part saved "
    "of what lies between prefix-lru and tail-belady at that xi. Recomputed: tokens computed again "
    "because they were evicted."
)


def comparison(trace: Trace, results: Sequence[Result], xis: Sequence[int]) -> Page:
    """Of `compare`: the tails at each capacity, over capacity if there are several, the tables."""
    groups = text.by_capacity(results)
    panels = [_tail(group, xis) for group in groups]
    sections = [Section("Who has to compute how much", tails_svg(panels), notes=[TAIL_NOTE])]
    if len(groups) > 2:
        sections.append(Section("Over capacity", curves_svg(over_capacity(results, xis))))
    for group in groups:
        sections += _tables(trace, group, xis)
    facts = [*text.heading(trace).split("\n"), text.fidelity(results[0])]
    return Page(f"Eviction policies on {trace.name}", facts, sections)


def _tables(trace: Trace, group: Sequence[Result], xis: Sequence[int]) -> list[Section]:
    title = text.capacity(group[0])
    header, rows = text.ages(group)
    sections = [
        Section(title, header=text.columns(xis), rows=text.rows(group, xis), notes=[LEGEND]),
        Section(f"{title}: ages", header=header, rows=rows, notes=[AGES]),
    ]
    header, rows = text.tenants(trace, group)
    if rows:
        sections.append(Section(f"{title}: tenants", header=header, rows=rows, notes=[TENANTS]))
    return sections


def _tail(group: Sequence[Result], xis: Sequence[int]) -> Panel:
    return Panel(
        title=f"{group[0].capacity_blocks:,} blocks",
        x_label="uncached prompt tokens",
        y_label="requests with more",
        series=[_tail_of(result) for result in group],
        scale="log",
        percent=True,
        marks=[(xi, f"xi {xi:,}") for xi in xis if xi > 0],
    )


def _tail_of(result: Result, label: str | None = None) -> Series:
    name = label or str(knobs_of(result))
    return Series(name, result.policy, result.uncached_tokens.clip(min=1))


def over_capacity(results: Sequence[Result], xis: Sequence[int]) -> list[Panel]:
    """Hit ratio, median, and for each xi the share above it and TEL."""
    return curves(results, [result.capacity_blocks for result in results], "blocks", "log", xis)


def curves(
    results: Sequence[Result], x: Sequence[float], label: str, scale: str, xis: Sequence[int]
) -> list[Panel]:
    """The yardsticks of these results, which stand at these x."""
    ticks = sorted(set(x))

    def panel(title: str, y_label: str, values: Sequence[float], percent: bool) -> Panel:
        lines: dict[str, list[tuple[float, float, str]]] = {}
        for result, at, value in zip(results, x, values, strict=True):
            lines.setdefault(str(knobs_of(result)), []).append((at, value, result.policy))
        series = [
            Series(name, points[0][2], [y for _, y, _ in points], [at for at, _, _ in points])
            for name, points in ((name, sorted(points)) for name, points in lines.items())
        ]
        few = ticks if len(ticks) <= 10 else ()
        return Panel(title, label, y_label, series, scale, percent, ticks=few)

    panels = [
        panel("Hit ratio", "of prompt blocks", [*map(yardsticks.hit_ratio, results)], True),
        panel(
            "Median",
            "uncached tokens, p50",
            [yardsticks.uncached_quantile(result, 0.5) for result in results],
            False,
        ),
    ]
    for xi in xis:
        above = [yardsticks.share_above(result, xi) for result in results]
        tel = [float(yardsticks.tel(result, xi)) for result in results]
        panels += [
            panel(f"Requests above {xi:,} uncached tokens", "of all requests", above, True),
            panel(f"TEL above {xi:,}", "tokens", tel, False),
        ]
    return panels


def curve(trace: Trace, drawn: Sequence[tuple[Knobs, Curve]], xis: Sequence[int]) -> Page:
    """Of `curve`: the plots, and a table and the knee of each policy."""
    over = drawn[0][1].over
    results = [result for _, line in drawn for result in line.results]
    x = [at for _, line in drawn for at in line.x]
    label = "capacity, blocks" if over == "capacity" else "load, times that of the trace"
    scale = "log" if over == "capacity" else "linear"
    notes = [CURVE_NOTE] if over == "capacity" else []
    figure = curves_svg(curves(results, x, label, scale, xis))
    sections = [Section(f"Over {over}", figure, notes=notes)]
    for knobs, line in drawn:
        header, rows = text.points(line, xis)
        sections.append(
            Section(str(knobs), header=header, left=0, rows=rows, notes=[text.knee(line)])
        )
    facts = [*text.heading(trace).split("\n"), text.fidelity(results[0])]
    return Page(f"Eviction policies on {trace.name}, over {over}", facts, sections)


def advice(trace: Trace, advised: Advice) -> Page:
    """Of `advise`: the verdict, what was tried, the tails, the table."""
    facts = [
        *text.heading(trace).split("\n"),
        text.capacity(advised.outcomes[0].result),
        text.fidelity(advised.outcomes[0].result),
        advice_text.target(advised.goal),
    ]
    sections = [
        Section(
            "Outcome",
            header=advice_text.HEADER,
            left=2,
            rows=advice_text.rows(advised),
            notes=advice_text.notes(advised),
        )
    ]
    searched = [trial for trial in advised.trials if trial.knobs.xi_tokens is not None]
    if searched:
        sections.append(Section("What was tried, on the first half", _search_svg(advised)))
    sections.append(
        Section("Who has to compute how much", tails_svg([_outcome_tails(advised)], 1),
                notes=[TAIL_NOTE])
    )  # fmt: skip
    return Page(
        f"Advice for {trace.name}",
        facts,
        sections,
        verdict=advice_text.verdict(advised),
        mood=MOODS.get(advised.verdict, "bad"),
    )


def _outcome_tails(advised: Advice) -> Panel:
    goal = advised.goal
    return Panel(
        title=f"{advised.capacity_blocks:,} blocks, whole trace",
        x_label="uncached prompt tokens",
        y_label="requests with more",
        series=[
            _tail_of(one.result, f"{advice_text.ROLES[one.role]}: {one.knobs}")
            for one in advised.outcomes
        ],
        scale="log",
        percent=True,
        marks=[(max(1, goal.xi_tokens), f"target, {duration(goal.slo_seconds)}")],
    )


def _search_svg(advised: Advice) -> str:
    """Late requests, TEL and the median over xi, each beside the engine's own order."""
    by_policy: dict[str, list[tuple[int, tuple[float, ...]]]] = {}
    for trial in advised.trials:
        if trial.knobs.xi_tokens is not None:
            fitted = trial.fitted
            values = (fitted.late / fitted.requests, fitted.excess_tokens, fitted.p50)
            by_policy.setdefault(trial.knobs.policy, []).append((trial.knobs.xi_tokens, values))
    stock = next(outcome for outcome in advised.outcomes if outcome.role == "stock").first
    level = (stock.late / stock.requests, stock.excess_tokens, stock.p50)
    titles = (("Late", "of the requests", True), ("TEL", "tokens", False), ("p50", "tokens", False))
    q_hat = f"xi, tokens, with q_hat {advised.q_hat_tokens:,}"
    panels = []
    for index, (title, y_label, percent) in enumerate(titles):
        series = []
        for policy, points in by_policy.items():
            points.sort()
            xis = [float(xi) for xi, _ in points]
            series.append(Series(policy, policy, [values[index] for _, values in points], xis))
        ends = [min(s.x[0] for s in series), max(s.x[-1] for s in series)]
        series.append(Series("prefix-lru", "prefix-lru", [level[index]] * 2, ends))
        panels.append(Panel(title, q_hat, y_label, series, percent=percent))
    return curves_svg(panels, 3)
