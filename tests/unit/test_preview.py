"""The dashboards drawn without Grafana: variables, units, tables, plots, the page, the command."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from evictune import cli
from evictune.console.preview import Progress
from evictune.preview.answers import Filled, FilledBoard, Line, Mark, fill, named
from evictune.preview.boards import Board, Panel, Target, load
from evictune.preview.canvas import fitting, margin
from evictune.preview.chosen import builtin, choose, replaced
from evictune.preview.page import page
from evictune.preview.plots import plot
from evictune.preview.store import QueryError, Range, Series
from evictune.preview.tables import joined, number, table
from evictune.preview.timeline import timeline
from evictune.preview.units import shown, ticks

from tests.support.page_server import Answer, Asked, serve

SPAN = Range(0.0, 600.0, 15.0)
NOTHING = json.dumps({"status": "success", "data": {"resultType": "matrix", "result": []}})


class FakeStore:
    """Answers every query with the same series, and knows some label values."""

    def __init__(self, *series: Series, refuse: str = "", known: tuple[str, ...] = ("a",)) -> None:
        self.series = list(series)
        self.refuse = refuse
        self.known = known
        self.asked: list[str] = []

    def over(self, query: str, span: Range) -> list[Series]:
        self.asked.append(query)
        if self.refuse and self.refuse in query:
            raise QueryError("parse error")
        return self.series

    def at(self, query: str, time: float) -> list[Series]:
        return self.over(query, SPAN)

    def label_values(self, series: str, label: str, span: Range) -> list[str]:
        self.asked.append(series)
        return list(self.known)


def panel(kind: str = "timeseries", **more: Any) -> Panel:
    body = {
        "type": kind,
        "title": "Load",
        "description": "How much there is of it.",
        "gridPos": {"x": 0, "y": 0, "w": 12, "h": 8},
        "targets": [{"refId": "A", "expr": "load", "legendFormat": ""}],
        "fieldConfig": {"defaults": {"unit": "none"}, "overrides": []},
    }
    return Panel(body | more)


def line(samples: list[tuple[float, float]], name: str = "load", ref: str = "A", **labels: str):
    return Line(name, Series(labels, samples), ref)


def board(*panels: Panel) -> Board:
    body = {
        "uid": "evictune-test",
        "title": "Test",
        "description": "For a test.",
        "panels": [each.body for each in panels],
        "templating": {"list": []},
        "annotations": {"list": []},
    }
    return Board("test", body)


def drawn(*panels: Panel, store: FakeStore) -> Any:
    return page(fill([board(*panels)], store, SPAN, 15, {}), "http://store")  # type: ignore[arg-type]


def test_variables_take_the_place_of_their_names() -> None:
    values = {"namespace": "serve-a", "__rate_interval": "60000ms"}
    text = 'rate(x{namespace=~"$namespace",y="${namespace:regex}"}[$__rate_interval]) $1 $else'
    assert replaced(text, values) == ('rate(x{namespace=~"serve-a",y="serve-a"}[60000ms]) $1 $else')


@pytest.mark.parametrize(
    ("step", "scrape", "rate"), [(15, 15, "60000ms"), (60, 15, "75000ms"), (5, 5, "20000ms")]
)
def test_the_rate_interval_is_grafana_s(step: float, scrape: float, rate: str) -> None:
    assert builtin(step, scrape)["__rate_interval"] == rate


def test_what_is_chosen_means_itself_in_a_regular_expression() -> None:
    (policy,) = load(["policy"])
    store = FakeStore(known=("chat.8b", "rag"))
    values = choose(policy, {"policy": "chat.8b"}, store, SPAN, 15)  # type: ignore[arg-type]
    assert values["policy"] == r"chat\.8b"
    assert values["namespace"] == r"chat\.8b"  # the first there is
    assert values["pod"] == ".+"
    assert r'policy=~"chat\\.8b"' in replaced('policy=~"$policy"', values)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0, "none", "0"),
        (3, "none", "3"),
        (0.1234, "percentunit", "12.3%"),
        (0.812, "s", "812 ms"),
        (75, "s", "1.25 min"),
        (0, "s", "0 s"),
        (0.00099999, "s", "1 ms"),
        (59.999, "s", "1 min"),
        (512, "suffix: tokens", "512 tokens"),
        (27012, "suffix: tokens/s", "27 K tokens/s"),
        (0.004, "none", "0.004"),
        (1_000_000, "none", "1000 K"),
        ((1000 - 300) * 1000, "dateTimeFromNow", "5 minutes ago"),
    ],
)
def test_units(value: float, unit: str, text: str) -> None:
    assert shown(value, unit, now=1000) == text


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 1, [0, 0.5, 1]),
        (0, 0.87, [0, 0.5, 1]),
        (0, 10, [0, 5, 10]),
        (0, 7, [0, 2, 4, 6, 8]),
        (-1, 1, [-1, -0.5, 0, 0.5, 1]),
    ],
)
def test_an_axis_has_round_numbers(low: float, high: float, expected: list[float]) -> None:
    assert ticks(low, high, "none") == pytest.approx(expected)


def test_a_legend_names_its_labels() -> None:
    target = Target("A", "x", "{{pod}} {{engine}}{{dp_rank}}", False)
    assert named(target, Series({"pod": "owl-a", "engine": "0"}, [])) == "owl-a 0"


def test_rows_that_agree_are_one() -> None:
    asked = [{"refId": ref, "expr": "x", "legendFormat": ""} for ref in "AB"]
    filled = Filled(
        panel("table", targets=asked),
        [
            line([(0, 1)], namespace="n", policy="chat"),
            line([(0, 2)], namespace="n", policy="rag"),
            line([(0, 9)], ref="B", namespace="n", policy="chat"),
            line([(0, 8)], ref="B", namespace="n", policy="new"),
        ],
    )
    assert joined(filled) == [
        {"namespace": "n", "policy": "chat", "Value #A": 1, "Value #B": 9},
        {"namespace": "n", "policy": "rag", "Value #A": 2},
        {"namespace": "n", "policy": "new", "Value #B": 8},
    ]


def test_a_table_is_ordered_and_says_how_much_it_leaves_out() -> None:
    body = panel("table", options={"sortBy": [{"displayName": "Value", "desc": True}]})
    filled = Filled(body, [line([(0, float(n))], policy=f"p-{n}") for n in range(23)])
    text = table(filled, 0)
    assert re.findall(r"p-\d+", text)[:3] == ["p-22", "p-21", "p-20"]
    assert "and 3 more" in text


def test_a_table_whose_column_of_order_has_no_data_is_drawn() -> None:
    asked = [{"refId": ref, "expr": "x", "legendFormat": ""} for ref in "AB"]
    titled = {"matcher": {"id": "byName", "options": "Value #A"}, "properties": []}
    titled["properties"] = [{"id": "displayName", "value": "TTFT"}]
    body = panel(
        "table",
        targets=asked,
        options={"sortBy": [{"displayName": "TTFT", "desc": True}]},
        fieldConfig={"defaults": {"unit": "none"}, "overrides": [titled]},
    )
    lines = [line([(0, 1.0)], ref="B", policy=name) for name in ("rag", "chat")]
    assert re.findall("rag|chat", table(Filled(body, lines), 0)) == ["chat", "rag"]


def test_a_gap_is_not_drawn_over() -> None:
    whole = [(t, 1.0) for t in range(0, 150, 15)]
    torn = [each for each in whole if not 60 <= each[0] <= 90]
    for samples, stretches in ((whole, 1), (torn, 2)):
        svg = plot(Filled(panel(), [line(samples)]), SPAN, [], 500, 200)
        assert svg.count('class="line"') == stretches


def test_a_stack_ends_at_the_sum() -> None:
    defaults = {"unit": "none", "custom": {"stacking": {"mode": "normal"}}}
    body = panel(fieldConfig={"defaults": defaults, "overrides": []})
    lines = [line([(0, 40.0), (15, 40.0)]), line([(0, 50.0), (15, 50.0)])]
    assert "100</text>" in plot(Filled(body, lines), SPAN, [], 500, 200)


def test_states_are_named_and_those_alike_are_one_box() -> None:
    mappings = [{"type": "value", "options": {"1": {"text": "Healthy", "color": "#56a64b"}}}]
    body = panel(fieldConfig={"defaults": {"mappings": mappings}, "overrides": []})
    samples = [(t, 1.0) for t in range(0, 300, 15)] + [(t, 2.0) for t in range(300, 600, 15)]
    svg = timeline(Filled(body, [line(samples)]), SPAN, [], 500, 200)
    assert svg.count("<rect") == 2
    assert "Healthy" in svg


@pytest.mark.parametrize(
    ("name", "shown"),
    [("owl-a", "owl-a"), ("evictune-5d78545d8c-zxm8j 10.2.178.3:9090", "evict…:9090")],
)
def test_a_name_longer_than_its_margin_keeps_its_ends(name: str, shown: str) -> None:
    left = margin([name], 85)
    assert fitting(name, left) == shown
    svg = timeline(Filled(panel(), [Line(name, Series({}, [(0, 1.0)]), "A")]), SPAN, [], 200, 99)
    assert f"<title>{name}</title>" in svg


def test_a_legend_says_what_was_last_where_that_is_wanted() -> None:
    lines = [line([(0, 7.0), (15, 7.0)])]
    for calcs, last in ((["lastNotNull"], True), ([], False)):
        body = panel(options={"legend": {"calcs": calcs}})
        assert ("<b>7</b>" in plot(Filled(body, lines), SPAN, [], 500, 200)) is last


def test_a_number_is_coloured_by_the_step_that_it_reached() -> None:
    steps = [{"color": "green", "value": None}, {"color": "red", "value": 1}]
    defaults = {"unit": "none", "thresholds": {"steps": steps}}
    body = panel("stat", fieldConfig={"defaults": defaults, "overrides": []})
    assert "red" in number(Filled(body, [line([(0, 1.0)])]))
    assert "green" in number(Filled(body, [line([(0, 0.5)])]))


def test_each_mark_is_drawn_once() -> None:
    (policy,) = load(["policy"])
    store = FakeStore(Series({"reason": "Kept"}, [(t, 300_000.0) for t in range(0, 600, 15)]))
    (filled,) = fill([policy], store, SPAN, 15, {})  # type: ignore[arg-type]
    assert filled.marks == [Mark(300, "Kept")]


def test_the_page_fetches_nothing_and_escapes_what_others_wrote() -> None:
    evil = Series({"pod": "<script>alert(1)</script>"}, [(0, 1.0), (15, 2.0)])
    html = drawn(panel(), panel("table"), store=FakeStore(evil)).html
    assert "alert(1)" in html
    assert "<script>alert" not in html
    assert not re.search(r"""(src|srcset)=|url\(|@import|<link|fetch\(|import\(|http-equiv""", html)


def test_panels_without_data_and_refused_queries_are_told() -> None:
    result = drawn(panel(), store=FakeStore())
    assert result.without_data == ["test: Load"]
    assert 'data-state="none"' in result.html
    result = drawn(panel(), store=FakeStore(refuse="load"))
    assert result.refused == ["test: Load"]
    assert "query A: parse error" in result.html


def test_a_panel_without_data_says_what_that_means() -> None:
    defaults = {"unit": "none", "noValue": "every condition is True"}
    body = panel("table", fieldConfig={"defaults": defaults, "overrides": []})
    assert "every condition is True" in drawn(body, store=FakeStore()).html


def test_every_panel_of_every_dashboard_is_drawn() -> None:
    labels = {"namespace": "a", "policy": "a", "pod": "p", "reason": "Kept", "regime": "Healthy"}
    store = FakeStore(Series(labels, [(0, 1.0), (15, 1.0)]))
    result = page(fill(load(), store, SPAN, 15, {}), "http://store")  # type: ignore[arg-type]
    assert result.without_data == []
    assert result.html.count('data-state="drawn"') == result.panels > 50


def test_progress_begins_after_two_seconds() -> None:
    now = [0.0]
    stream = io.StringIO()
    progress = Progress(stream, lambda: now[0])
    for done, moment in enumerate((1.0, 2.5, 3.0, 8.0), start=1):
        now[0] = moment
        progress.told(done, 9)
    assert stream.getvalue().splitlines() == ["2 of 9 queries answered", "4 of 9 queries answered"]


def asked(url: str, out: Path | str, *more: str) -> list[str]:
    return ["dashboards", "preview", "--prometheus", url, "--out", str(out), *more]


def complaint(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> tuple[int, str]:
    code = cli.main(arguments)
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return code, error


@pytest.mark.parametrize(
    ("more", "code", "words"),
    [
        (("--last", "3 hours"), 2, ("--last", "'3 hours'", "write a duration")),
        (("--last", "99999999h"), 2, ("--last", "'99999999h'", "before 1970")),
        (("--last", "9" * 400 + "h"), 2, ("--last", "before 1970")),
        (("--end", "0001-01-01T00:00:00Z"), 2, ("--end", "'0001-01-01T00:00:00Z'", "1970")),
        (("--last", "0s"), 2, ("--last", "'0s'", "such as 3h")),
        (("--end", "yesterday"), 2, ("--end", "'yesterday'", "2026-11-29T12:00:00Z")),
        (("--end", "2026-11-29T12:00:00"), 2, ("--end", "2026-11-29T12:00:00Z")),
        (("--scrape-interval", "10ms"), 2, ("--scrape-interval", "'10ms'", "1s")),
        (("--scrape-interval", "often"), 2, ("--scrape-interval", "'often'", "duration")),
    ],
)
def test_options_that_cannot_be_used(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, more: tuple[str, ...], code: int, words: Any
) -> None:
    ended, error = complaint(capsys, asked("http://127.0.0.1:1", tmp_path / "p.html", *more))
    assert ended == code
    assert all(word in error for word in words), error


@pytest.mark.parametrize("url", ["127.0.0.1:9090", "ftp://store", "http://", "http://[::1"])
def test_an_address_that_is_none(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, url: str
) -> None:
    code, error = complaint(capsys, asked(url, tmp_path / "p.html"))
    assert code == 2
    assert repr(url) in error
    assert "http://HOST:PORT" in error


def test_a_store_that_is_not_there(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, error = complaint(capsys, asked("http://127.0.0.1:1", tmp_path / "p.html"))
    assert code == 1
    assert "Connection refused" in error
    assert "port-forward" in error
    assert not (tmp_path / "p.html").exists()


@pytest.mark.parametrize(
    "url", ["http://[::1%25nowhere]:9090", "http://[::1]:99999", "http://a..b:9090", "http://.b"]
)
def test_an_address_that_leads_nowhere(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, url: str
) -> None:
    code, error = complaint(capsys, asked(url, tmp_path / "p.html"))
    assert code in (1, 2)
    assert url in error


@pytest.mark.parametrize(
    "body",
    [
        "[]",
        '"success"',
        '{"status": "success"}',
        '{"status": "success", "data": null}',
        '{"status": "success", "data": {"result": 1}}',
        '{"status": "success", "data": {"resultType": "vector", "result": [{"metric": {}}]}}',
        '{"status": "success", "data": [1]}',
        "[" * 100_000,
    ],
)
def test_an_answer_of_another_shape(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, body: str
) -> None:
    with serve(lambda _: Answer(body)) as server:
        code, error = complaint(capsys, asked(server.url, tmp_path / "p.html"))
    assert code == 1
    assert "not as Prometheus's API does" in error


def test_a_page_of_something_else(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with serve(lambda _: Answer("<html>Grafana</html>", 404)) as server:
        code, error = complaint(capsys, asked(server.url, tmp_path / "p.html"))
    assert code == 1
    assert "status 404" in error
    assert "Grafana" in error


def test_a_policy_that_is_not_there(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    known = [{"namespace": "serve-a", "policy": "chat", "pod": "owl"}]

    def respond(one: Asked) -> Answer:
        data = known if one.path.endswith("/series") else json.loads(NOTHING)["data"]
        return Answer(json.dumps({"status": "success", "data": data}))

    with serve(respond) as server:
        arguments = asked(server.url, tmp_path / "p.html", "--policy", "chta")
        code, error = complaint(capsys, arguments)
    assert code == 1
    assert "--policy 'chta'" in error
    assert "it has chat" in error


def test_a_file_that_cannot_be_written(capsys: pytest.CaptureFixture[str]) -> None:
    series = json.dumps({"status": "success", "data": []})
    with serve(lambda one: Answer(series if "series" in one.path else NOTHING)) as server:
        code, error = complaint(capsys, asked(server.url, "/nowhere/p.html"))
    assert code == 1
    assert "--out /nowhere/p.html" in error


def test_a_refused_query_ends_with_one_and_the_page_says_why(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    refusal = json.dumps({"status": "error", "errorType": "bad_data", "error": "too many samples"})
    series = json.dumps({"status": "success", "data": []})
    out = tmp_path / "p.html"
    with serve(lambda one: Answer(series if "series" in one.path else refusal)) as server:
        code = cli.main(asked(server.url, out, "--dashboard", "fleet"))
    assert code == 1
    assert "fleet: Policies" in capsys.readouterr().err
    assert "too many samples" in out.read_text()


def test_a_board_without_values_is_empty_not_wrong() -> None:
    filled = fill(load(["policy"]), FakeStore(known=()), SPAN, 15, {})  # type: ignore[arg-type]
    assert isinstance(filled[0], FilledBoard)
    assert filled[0].values["policy"] == r"\-"


@pytest.mark.parametrize(
    "address", ["http://admin:s3cret@127.0.0.1:9", "http://127.0.0.1:9/?token=s3cret"]
)
def test_what_must_stay_secret_is_refused_and_not_repeated(
    address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, told = complaint(capsys, asked(address, tmp_path / "p.html"))
    assert code == 2
    assert "--prometheus" in told
    assert "s3cret" not in told
    assert not (tmp_path / "p.html").exists()
