"""docs/reference/metrics.md, written from the table of names."""

from __future__ import annotations

from collections.abc import Iterator

from evictune.observe.dialects import (
    DEFAULT_PORTS,
    MEANINGS,
    NAMES,
    PART_LABELS,
    PLUGIN_PORT,
    PLUGIN_SERIES,
)
from evictune.observe.target import METRICS_PORT_ANNOTATION
from evictune.operator_metrics import OperatorMetrics

_PARTS = ", ".join(f"`{label}`" for label in PART_LABELS)

_INTRODUCTION = f"""\
# Metrics that evictune reads

Generated from `evictune/observe/dialects.py` and `evictune/operator_metrics.py` (`make generate`).

A reading is a value, `Idle` (known to have no traffic) or `Unknown` with a reason; never a zero
that means "could not read". Only pods count that the API server shows as ready: series of pods
that are gone are ignored, and a ready pod without a series makes a reading Unknown
(`IncompleteCoverage`), not smaller. Series are joined to pods by namespace and pod; `model_name`
plays no part.

## From the engines

Where an engine rank exposes several names of one measure, the first one listed is read; names are
never summed. The names in use stand in the policy's `status.observed.metricNames`. Pipelines that
write `_` for the `:`, or drop the suffix `_total`, are understood. Series of a rank that differ in
the labels {_PARTS} are parts of one measure, and summed;
series that differ in any other label (two scrape jobs, replicas of the store, tensor-parallel
ranks) repeat each other, and the largest counts.
"""

_SOURCES = f"""\

The quantile of the TTFT is the interval between two bucket bounds, of which the upper may be
infinite: the engines' buckets, not an interpolation, decide what is known. Start vLLM with bounds
close together around the objective, for example
`--custom-histogram-buckets '{{"time_to_first_token": [0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4]}}'`.
The first bound must lie below what is ever measured: when every request falls into the first
bucket, the reading is Unknown (`Implausible`).

A **Prometheus** source must label the series with `namespace` and `pod`, as the usual pod
discovery does; the source's option `labels` names others (see the
[configuration](configuration.md)). Every sampler asks one query for each measure, for all
policies with the same source and window, and one more while a namespace has no series at all. The
window should span several scrape intervals. The store evaluates at its own clock. An increase
counts only while its series is still there; a gauge without a mark of staleness, of a pod replaced
under its own name, is seen for as long as the store looks back (5 minutes). An answer that the
store calls partial (`warnings`) is refused.

The **direct** source scrapes `http://POD_IP:PORT/metrics` at every look. PORT is `--port` of the
engine's command line, else the container's port named `metrics` or `http`, else
{", ".join(f"{port} ({engine})" for engine, port in DEFAULT_PORTS.items())}. Increases need two
looks: `slo.ttft.window` must not be shorter than half of `behavior.interval`.

## From the plugin

Read from `http://POD_IP:{PLUGIN_PORT}/metrics` of every ready pod, whatever the source is; the
pod's annotation `{METRICS_PORT_ANNOTATION}` names another port.
"""

_OWN = """\

## Of the operator itself

Served on `metricsAddress` (the chart's port `metrics`), also by an operator that waits for its
Lease. The label `namespace` is the policy's: scrape with `honor_labels: true`, as the chart's
PodMonitor does.
"""


def _page() -> Iterator[str]:
    """docs/reference/metrics.md, line by line."""
    yield _INTRODUCTION
    yield "| measure | engine | name | versions | read as | unit | pooled |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for name in NAMES:
        meaning = MEANINGS[name.measure]
        # Apart from the name, so that a line may break between them.
        labels = "".join(f' `{{{key}="{value}"}}`' for key, value in name.labels.items())
        yield (
            f"| {name.measure} | {name.engine} | `{name.base}`{labels} | {name.versions} "
            f"| {meaning.kind.value} | {meaning.unit} | {meaning.pooling} |"
        )
    yield _SOURCES
    yield "| name | what it says |"
    yield "| --- | --- |"
    for series, text in PLUGIN_SERIES.items():
        yield f"| `{series}` | {text} |"
    yield _OWN
    yield "| name | type | labels | what it says |"
    yield "| --- | --- | --- | --- |"
    for family, told_apart_by in OperatorMetrics().families():
        series = f"{family.name}_total" if family.type == "counter" else family.name
        shown = ", ".join(told_apart_by)
        yield f"| `{series}` | {family.type} | {shown} | {family.documentation} |"


def metrics_page() -> str:
    """The text of docs/reference/metrics.md."""
    return "\n".join(_page()) + "\n"
