"""What the dashboards share: looks, variables, links, and one function a kind of panel."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import TypeVar

from evictune.observe.dialects import Measure, names_of
from grafana_foundation_sdk.builders import common as shape
from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.builders import prometheus, stat, statetimeline, table, timeseries
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from dashboards.query import REGIMES

RUNBOOKS = "https://evictune.io/docs/runbooks/"
TAG = "evictune"
GREEN, YELLOW, ORANGE, RED = "#56a64b", "#e0b400", "#ff780a", "#e02f44"
BLUE, PURPLE, GREY, TEAL = "#3274d9", "#a352cc", "#8e8e8e", "#0f9d9d"
REGIME_COLOURS: Mapping[str, str] = {
    "Unknown": GREY,
    "Idle": "#b7b7b7",
    "NotEligible": "#7d5a3c",
    "Settling": BLUE,
    "Stalled": "#8f1d2c",
    "Healthy": GREEN,
    "Borderline": YELLOW,
    "QueueBound": PURPLE,
    "CapacityBound": RED,
    "ReuseLost": ORANGE,
    "NoReuse": TEAL,
}
Panel = timeseries.Panel | stat.Panel | statetimeline.Panel | table.Panel
_P = TypeVar("_P", timeseries.Panel, stat.Panel, statetimeline.Panel, table.Panel)
_SOURCE = model.DataSourceRef(type_val="prometheus", uid="$datasource")
Colours = Mapping[str, str]
Variable = build.QueryVariable


@dataclass(frozen=True)
class Query:
    """A query and how its series are called. instant: the value at the range's end alone."""

    expr: str
    legend: str = ""
    instant: bool = False


@dataclass(frozen=True)
class Column:
    """A column of a table: of the label of this name, or `Value #A` of the first query."""

    field: str
    title: str
    unit: str = ""
    values: Sequence[tuple[float, str, str]] = ()
    link: str = ""


def dashboard(uid: str, title: str, description: str, span: str = "now-3h") -> build.Dashboard:
    """An empty dashboard, linked to its sisters."""
    sisters = (
        build.DashboardLink("evictune")
        .type(model.DashboardLinkType.DASHBOARDS)
        .tags([TAG])
        .include_vars(True)
        .keep_time(True)
    )
    runbooks = (
        build.DashboardLink("Runbooks")
        .type(model.DashboardLinkType.LINK)
        .icon("doc")
        .tooltip("What to do about each alert")
        .url(RUNBOOKS)
        .target_blank(True)
    )
    return (
        build.Dashboard(title)
        .uid(uid)
        .description(description)
        .tags([TAG])
        .editable()
        .timezone("browser")
        .time(span, "now")
        .refresh("1m")
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .links([sisters, runbooks])
        .with_variable(
            build.DatasourceVariable("datasource").label("Data source").type("prometheus")
        )
    )


def variable(name: str, label: str, of: str, *, several: bool, text: str) -> build.QueryVariable:
    """A variable with the values of a label. of: the series; several: All is among them."""
    made = (
        build.QueryVariable(name)
        .label(label)
        .description(text)
        .datasource(_SOURCE)
        .query(f"label_values({of}, {name})")
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(model.VariableSort.ALPHABETICAL_ASC)
        .multi(several)
        .include_all(several)
    )
    if several:
        made = made.all_value(".+").current(model.VariableOption(text="All", value="$__all"))
    return made


def engines_of(matchers: str = "") -> str:
    """A selector that every engine has a series for, whatever its kind."""
    spellings = [each for name in names_of(Measure.RUNNING) for each in name.spellings]
    return f'{{__name__=~"{"|".join(spellings)}"{matchers}}}'


class _Marks(model.AnnotationQuery):
    """With what Grafana's Prometheus source reads beside the SDK's fields."""

    def to_json(self) -> dict[str, object]:
        # The value itself is the time of the mark, in milliseconds since the epoch.
        own = {"useValueForTime": True, "titleFormat": "{{reason}}", "step": "15s"}
        return super().to_json() | own


def marks(name: str, expr: str) -> build.AnnotationQuery:
    """Marks at the times that the query's values are, in milliseconds since the epoch."""
    made = build.AnnotationQuery()
    made._internal = _Marks()
    return made.name(name).datasource(_SOURCE).enable(True).expr(expr).icon_color(BLUE)


def fill(made: build.Dashboard, sections: Mapping[str, Sequence[Panel]]) -> build.Dashboard:
    """Add panels under headings."""
    for title, panels in sections.items():
        made = made.with_row(build.Row(title))
        for panel in panels:
            made = made.with_panel(panel)
    return made


def lines(
    title: str,
    text: str,
    *queries: Query,
    unit: str,
    colours: Colours | None = None,
    stacked: bool = False,
    steps: bool = False,
    highest: float | None = None,
    width: int = 12,
    runbook: str = "",
) -> timeseries.Panel:
    """Values over time, from zero. colours: of the series that are called so."""
    # Areas of several series, one over the other, would be mud.
    single = len(queries) == 1 and "{{" not in queries[0].legend
    panel = (
        _common(timeseries.Panel(), title, text, queries, width, 8, runbook)
        .unit(unit)
        .axis_soft_min(0)
        .line_width(1.5)
        .fill_opacity(60 if stacked else 8 if single else 0)
        .show_points(common.VisibilityMode.NEVER)
        .legend(
            shape.VizLegendOptions()
            .display_mode(common.LegendDisplayMode.LIST)
            .placement(common.LegendPlacement.BOTTOM)
            .show_legend(True)
            # What lies in a stack comes and goes: a last value is not the present one.
            .calcs([] if stacked else ["lastNotNull"])
        )
        .tooltip(shape.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI))
    )
    if stacked:
        panel = panel.stacking(shape.StackingConfig().mode(common.StackingMode.NORMAL).group("A"))
    if steps:
        panel = panel.line_interpolation(common.LineInterpolation.STEP_AFTER)
    if highest is not None:
        panel = panel.min(0).max(highest)
    for name, colour in (colours or {}).items():
        panel = panel.override_by_name(name, [_colour(colour)])
    return panel


def limit(panel: timeseries.Panel, name: str) -> timeseries.Panel:
    """Draw this series of the panel as a dashed red line without an area."""
    dashed = model.DynamicConfigValue("custom.lineStyle", {"fill": "dash", "dash": [8, 6]})
    flat = model.DynamicConfigValue("custom.fillOpacity", 0)
    return panel.override_by_name(name, [_colour(RED), dashed, flat])


def band(panel: timeseries.Panel, upper: str, lower: str, colour: str) -> timeseries.Panel:
    """Fill what lies between two series of the panel."""
    thin = model.DynamicConfigValue("custom.lineWidth", 0)
    below = model.DynamicConfigValue("custom.fillBelowTo", lower)
    dense = model.DynamicConfigValue("custom.fillOpacity", 25)
    flat = model.DynamicConfigValue("custom.fillOpacity", 0)
    return panel.override_by_name(upper, [_colour(colour), thin, dense, below]).override_by_name(
        lower, [_colour(colour), thin, flat]
    )


def figure(
    title: str,
    text: str,
    query: Query,
    *,
    unit: str = "none",
    steps: Sequence[tuple[float, str]] = (),
    values: Sequence[tuple[float, str, str]] = (),
    width: int = 4,
    runbook: str = "",
    none: str = "–",
) -> stat.Panel:
    """One number, as it is now: what is not known any more is not shown as it was last.

    steps: (from which value, colour); values: (value, its name, colour).
    """
    asked = Query(query.expr, query.legend, instant=True)
    panel = (
        _common(stat.Panel(), title, text, (asked,), width, 4, runbook)
        .unit(unit)
        .no_value(none)
        .color_mode(common.BigValueColorMode.VALUE)
        .graph_mode(common.BigValueGraphMode.NONE)
        .reduce_options(shape.ReduceDataOptions().calcs(["lastNotNull"]).values(False))
        .thresholds(_thresholds(steps))
    )
    return panel.mappings(_mappings(values)) if values else panel


def states(
    title: str,
    text: str,
    query: Query,
    values: Sequence[tuple[float, str, str]],
    *,
    height: int = 6,
    width: int = 24,
    runbook: str = "",
) -> statetimeline.Panel:
    """One line a series, coloured by what its value is called."""
    return (
        _common(statetimeline.Panel(), title, text, (query,), width, height, runbook)
        .unit("none")
        .mappings(_mappings(values))
        .thresholds(_thresholds(()))
        .color_scheme(build.FieldColor().mode(model.FieldColorModeId.THRESHOLDS))
        .merge_values(True)
        .show_value(common.VisibilityMode.AUTO)
        .row_height(0.8)
        .legend(
            shape.VizLegendOptions()
            .display_mode(common.LegendDisplayMode.LIST)
            .placement(common.LegendPlacement.BOTTOM)
            .show_legend(True)
        )
    )


def listing(
    title: str,
    text: str,
    queries: Sequence[Query],
    columns: Sequence[Column],
    *,
    sort: str = "",
    hidden: Sequence[str] = (),
    width: int = 24,
    height: int = 8,
    none: str = "nothing",
    runbook: str = "",
) -> table.Panel:
    """A table: one line for each set of labels, one column for each value.

    sort: by the column of this title, largest first. hidden: fields that are no columns.
    """
    asked = [Query(each.expr, each.legend, instant=True) for each in queries]
    panel = (
        _common(table.Panel(), title, text, asked, width, height, runbook)
        .unit("none")
        .no_value(none)
        .with_transformation(model.DataTransformerConfig("merge", options={}))
        .with_transformation(_arranged(columns, hidden))
    )
    for column in columns:
        panel = panel.override_by_name(column.field, list(_properties(column)))
    if sort:
        panel = panel.sort_by([shape.TableSortByFieldState().display_name(sort).desc(True)])
    return panel


def regime_values() -> list[tuple[float, str, str]]:
    """What the numbers of query.regime are called."""
    numbered = enumerate(REGIMES, start=1)
    return [(number, str(each), REGIME_COLOURS[str(each)]) for number, each in numbered]


def _common(
    panel: _P, title: str, text: str, queries: Iterable[Query], w: int, h: int, runbook: str
) -> _P:
    panel = panel.title(title).description(text).datasource(_SOURCE).height(h).span(w)
    for ref, each in zip(ascii_uppercase, queries, strict=False):
        panel = panel.with_target(_target(ref, each, isinstance(panel, table.Panel)))
    if runbook:
        url = f"{RUNBOOKS}{runbook}"
        link = build.DashboardLink("Runbook").type(model.DashboardLinkType.LINK).url(url)
        panel = panel.links([link.target_blank(True)])
    return panel


def _target(ref: str, query: Query, as_table: bool) -> prometheus.Dataquery:
    target = prometheus.Dataquery().ref_id(ref).datasource(_SOURCE)
    target = target.expr(query.expr).legend_format(query.legend)
    target = target.instant() if query.instant else target.range()
    return target.format(PromQueryFormat.TABLE if as_table else PromQueryFormat.TIME_SERIES)


def _thresholds(steps: Sequence[tuple[float, str]]) -> build.ThresholdsConfig:
    # The first step has no value: it is what the value is from minus infinity on.
    found = [model.Threshold(color=BLUE)] if not steps or steps[0][0] > 0 else []
    found += [model.Threshold(value=value, color=colour) for value, colour in steps]
    return build.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(found)


def _mappings(values: Sequence[tuple[float, str, str]]) -> list[model.ValueMapping]:
    named = {
        f"{value:g}": model.ValueMappingResult(text=text, color=colour, index=index)
        for index, (value, text, colour) in enumerate(values)
    }
    return [model.ValueMap(options=named)]


def _arranged(columns: Sequence[Column], hidden: Sequence[str]) -> model.DataTransformerConfig:
    """Columns in their order; the time of the query is none of them."""
    order = {column.field: place for place, column in enumerate(columns)}
    excluded = dict.fromkeys(("Time", *hidden), True)
    options = {"excludeByName": excluded, "indexByName": order, "renameByName": {}}
    return model.DataTransformerConfig("organize", options=options)


def _properties(column: Column) -> Iterable[model.DynamicConfigValue]:
    yield model.DynamicConfigValue("displayName", column.title)
    if column.unit:
        yield model.DynamicConfigValue("unit", column.unit)
    if column.values:
        yield model.DynamicConfigValue("mappings", _mappings(column.values))
        yield model.DynamicConfigValue("custom.cellOptions", {"type": "color-text"})
    if column.link:
        link = {"title": f"Open {column.title}", "url": column.link}
        yield model.DynamicConfigValue("links", [link])


def _colour(colour: str) -> model.DynamicConfigValue:
    return model.DynamicConfigValue("color", {"mode": "fixed", "fixedColor": colour})
