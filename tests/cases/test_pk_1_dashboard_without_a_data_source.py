"""PK-1: a dashboard from a ConfigMap finds its data source, and asks only for what is exported."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from evictune.preview.chosen import builtin, replaced

from localcluster.binaries import version
from tests.support.helm import CHART, helm
from tests.support.promql_names import exported, names_in

# Built from source, Helm takes the cluster for a very old one.
TEMPLATE = ("template", "evictune", str(CHART), "--kube-version", version("kube-apiserver"))
LABELS = {"shown_by": "our-sidecar"}
ANNOTATIONS = {"our-folder": "LLM serving"}
Json = dict[str, Any]


@functools.cache
def config_maps() -> list[Json]:
    """What `helm template` makes of the chart with dashboards on."""
    values = {"dashboards": {"enabled": True, "labels": LABELS, "annotations": ANNOTATIONS}}
    made = yaml.safe_load_all(helm(*TEMPLATE, values=values))
    maps = [each for each in made if each and each["kind"] == "ConfigMap"]
    return [each for each in maps if any(name.endswith(".json") for name in each["data"])]


@functools.cache
def texts() -> list[str]:
    return [text for each in config_maps() for text in each["data"].values()]


@functools.cache
def boards() -> list[Json]:
    return [json.loads(text) for text in texts()]


def asking(board: Json) -> Iterator[Json]:
    """Everything of a dashboard that has a data source: panels, queries, marks, variables."""
    for panel in board["panels"]:
        if panel["type"] != "row":
            yield panel
            yield from panel["targets"]
    yield from (each for each in board["annotations"].get("list", ()) if "expr" in each)
    yield from (each for each in board["templating"]["list"] if each["type"] == "query")


def test_there_are_dashboards() -> None:
    assert len(boards()) == 4


def test_nothing_waits_for_a_hand_that_fills_it_in() -> None:
    for text in texts():
        assert "__inputs" not in text
        assert "${DS_" not in text


def test_everything_asks_the_data_source_of_the_variable() -> None:
    for board in boards():
        (source,) = [v for v in board["templating"]["list"] if v["type"] == "datasource"]
        assert source["query"] == "prometheus"
        for each in asking(board):
            assert each["datasource"]["uid"] == f"${source['name']}", each


def test_the_sidecar_finds_them_by_label_and_sorts_them_by_folder() -> None:
    for each in config_maps():
        assert LABELS.items() <= each["metadata"]["labels"].items()
        assert ANNOTATIONS.items() <= each["metadata"]["annotations"].items()


def test_addresses_are_fixed_and_no_two_are_the_same() -> None:
    addresses = [board["uid"] for board in boards()]
    assert len(set(addresses)) == len(addresses)
    assert all(re.fullmatch(r"evictune-[a-z]+", each) for each in addresses)


@pytest.mark.parametrize("number", range(4))
def test_every_metric_is_exported_by_operator_plugin_or_engine(number: int) -> None:
    board = boards()[number]
    names = [variable["name"] for variable in board["templating"]["list"]]
    values = builtin(15, 15) | dict.fromkeys(names, "any")
    queries = [replaced(each["expr"], values) for each in asking(board) if "expr" in each]
    assert queries
    for query in queries:
        assert names_in(query) <= exported(), query
