"""The dashboards with the series of an operator at work, in a real Prometheus."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from evictune import cli
from evictune.preview.boards import load
from evictune.preview.chosen import choose, replaced
from evictune.preview.store import Range, Store

from tests.support.played_run import APART, MAY_BE_EMPTY, Recorded, recorded


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    with recorded(tmp_path_factory.mktemp("run") / "prometheus") as found:
        yield found


def test_every_query_is_promql_and_every_panel_has_data(
    run: Recorded, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(run.preview(tmp_path / "page.html")) == 0
    told = capsys.readouterr().out
    assert re.search(r"page\.html: \d\d panels", told)
    empty = re.findall(r"without data: (.*)", told)
    assert set("; ".join(empty).split("; ")) - {""} <= MAY_BE_EMPTY


def test_every_single_query_is_answered(run: Recorded) -> None:
    """Also those beside others in their panel, which would hide that they find nothing."""
    store = Store(run.prometheus.url)
    span = Range(run.start, run.end, APART)
    silent = []
    for board in load():
        values = choose(board, {}, store, span, APART)
        for panel in board.panels:
            for target in panel.targets:
                if not store.over(replaced(target.expr, values), span):
                    silent.append(f"{board.name}: {panel.title}: {target.ref}")
    assert set(silent) <= {f"{each}: A" for each in MAY_BE_EMPTY} | {
        # Nothing was refused; nothing broke.
        "engine: Knob documents taken and refused: B"
    }
