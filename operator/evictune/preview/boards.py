"""The dashboards' JSON (`python -m dashboards` makes it), read into what drawing needs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from typing import Any

NAMES = ("fleet", "policy", "engine", "operator")
_LABEL_VALUES = re.compile(r"label_values\((?P<series>.+), (?P<label>\w+)\)")
_VALUE = re.compile(r"Value( #[A-Z])?")

Json = Mapping[str, Any]


@dataclass(frozen=True)
class Target:
    """A query. ref: a letter; instant: asked at the range's end alone."""

    ref: str
    expr: str
    legend: str
    instant: bool


@dataclass(frozen=True)
class Variable:
    """A variable whose values are those of a label of some series. all_value: of All, if any."""

    name: str
    series: str
    label: str
    all_value: str


@dataclass(frozen=True)
class Shown:
    """What a value is called, and its colour."""

    text: str
    colour: str


@dataclass(frozen=True)
class Panel:
    """A panel of the JSON, with what is asked of it."""

    body: Json

    @property
    def kind(self) -> str:
        """Grafana's name of its kind: row, timeseries, stat, state-timeline, table."""
        return str(self.body["type"])

    @property
    def title(self) -> str:
        """As shown above it."""
        return str(self.body["title"])

    @property
    def description(self) -> str:
        """What it shows, in words."""
        return str(self.body.get("description", ""))

    @property
    def place(self) -> tuple[int, int, int, int]:
        """x and width in 24ths of the page, y and height in rows: (x, y, width, height)."""
        grid = self.body["gridPos"]
        return grid["x"], grid["y"], grid["w"], grid["h"]

    @property
    def runbook(self) -> str:
        """Where it is told what to do; empty if nowhere."""
        return next((str(link["url"]) for link in self.body.get("links", ())), "")

    @cached_property
    def targets(self) -> tuple[Target, ...]:
        """The queries."""
        return tuple(
            Target(each["refId"], each["expr"], each["legendFormat"], each.get("instant", False))
            for each in self.body.get("targets", ())
        )

    @cached_property
    def defaults(self) -> Json:
        """What holds of every field."""
        found: Json = self.body["fieldConfig"]["defaults"]
        return found

    @property
    def custom(self) -> Json:
        """What holds of every field in this kind of panel alone."""
        found: Json = self.defaults.get("custom", {})
        return found

    @property
    def legend_values(self) -> bool:
        """Whether the legend says what each series was last."""
        return bool(self.body.get("options", {}).get("legend", {}).get("calcs"))

    def of(self, name: str) -> Json:
        """What holds of the series or field of this name, by the names of Grafana's properties."""
        return self._overrides.get(name, {})

    @cached_property
    def _overrides(self) -> Mapping[str, Json]:
        found: dict[str, dict[str, Any]] = {}
        for each in self.body["fieldConfig"].get("overrides", ()):
            properties = {one["id"]: one.get("value") for one in each["properties"]}
            found.setdefault(each["matcher"]["options"], {}).update(properties)
        return found

    def shown(self, value: float, name: str = "") -> Shown | None:
        """What the value is called; None if it is shown as a number."""
        mappings = self.of(name).get("mappings") or self.defaults.get("mappings") or ()
        for mapping in mappings:
            found = mapping["options"].get(f"{value:g}")
            if found:
                return Shown(found["text"], found["color"])
        return None

    def threshold_colour(self, value: float) -> str:
        """The colour of the highest step that the value reaches."""
        steps = self.defaults.get("thresholds", {}).get("steps", ())
        reached = [each["color"] for each in steps if value >= (each.get("value") or -1e300)]
        return str(reached[-1]) if reached else ""

    def transformation(self, name: str) -> Json:
        """The options of a transformation of the table."""
        found = (each for each in self.body.get("transformations", ()) if each["id"] == name)
        return next((each["options"] for each in found), {})


@dataclass(frozen=True)
class Board:
    """A dashboard."""

    name: str
    body: Json

    @property
    def uid(self) -> str:
        """Fixed, so that links find it."""
        return str(self.body["uid"])

    @property
    def title(self) -> str:
        """As shown above it."""
        return str(self.body["title"])

    @property
    def description(self) -> str:
        """What it is for."""
        return str(self.body["description"])

    @cached_property
    def panels(self) -> tuple[Panel, ...]:
        """In the order in which they are read; headings are of kind `row`."""
        return tuple(Panel(each) for each in self.body["panels"])

    @cached_property
    def variables(self) -> tuple[Variable, ...]:
        """Those with values of a label, each after those that it depends on."""
        found = []
        for each in self.body["templating"]["list"]:
            match = _LABEL_VALUES.fullmatch(str(each.get("query", "")))
            if match:
                all_value = each.get("allValue") if each.get("includeAll") else None
                found.append(
                    Variable(each["name"], match["series"], match["label"], all_value or "")
                )
        return tuple(found)

    @cached_property
    def marks(self) -> tuple[str, ...]:
        """Queries whose values are times of marks, in milliseconds since the epoch."""
        annotations = self.body["annotations"].get("list", ())
        return tuple(each["expr"] for each in annotations if each.get("useValueForTime"))


def load(names: Sequence[str] = NAMES) -> tuple[Board, ...]:
    """The dashboards that the distribution carries."""
    directory = files("evictune") / "dashboards"
    texts = {name: (directory / f"{name}.json").read_text("utf-8") for name in names}
    return tuple(Board(name, json.loads(text)) for name, text in texts.items())


def is_value(field: str) -> bool:
    """Whether a table's field is a value, not a label."""
    return bool(_VALUE.fullmatch(field))
