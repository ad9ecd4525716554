"""The preview of the dashboards in a real Chromium: what a person would see of an hour's play."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from evictune import cli

from tests.support.browser import Opened, opened
from tests.support.dashboard_page import PICTURES, cut_off, drawn, overlapping, pictures
from tests.support.played_run import MAY_BE_EMPTY, Recorded, recorded


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    with recorded(tmp_path_factory.mktemp("run") / "prometheus") as found:
        yield found


@pytest.fixture(scope="module")
def preview(run: Recorded) -> Iterator[Opened]:
    """The preview of the whole run, opened."""
    out = PICTURES / "preview.html"
    out.parent.mkdir(parents=True, exist_ok=True)
    assert cli.main(run.preview(out)) == 0
    with opened(out.as_uri()) as found:
        yield found


def test_the_browser_shows_every_panel_drawn(preview: Opened) -> None:
    panels = drawn(preview)
    assert len(panels) > 50
    assert set(panels) == {title for title, well in panels.items() if well} | MAY_BE_EMPTY


def test_nothing_is_cut_off_and_no_panel_covers_another(preview: Opened) -> None:
    assert cut_off(preview) == []
    assert overlapping(preview) == []


def test_the_page_asks_nobody_and_complains_of_nothing(preview: Opened) -> None:
    assert [each for each in preview.requests if not each.startswith(("file:", "data:"))] == []
    assert preview.complaints == []


def test_the_pointer_shows_the_values_of_a_step(preview: Opened) -> None:
    plot = preview.page.locator("#evictune-policy svg[data-hover]").first
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    assert box is not None
    preview.page.mouse.move(box["x"] + box["width"] * 0.7, box["y"] + box["height"] / 2)
    told = preview.page.locator("#tip").inner_text()
    assert re.search(r"\d\d:\d\d:\d\d UTC", told)
    assert re.search(r"threshold \d", told)


def test_decisions_are_marked(preview: Opened) -> None:
    marks = preview.page.locator("#evictune-policy .mark title").all_text_contents()
    assert any(mark.startswith("Acknowledged, ") for mark in marks)
    assert all(re.fullmatch(r"\w+, \d\d:\d\d:\d\d UTC", mark) for mark in marks)


def test_pictures_are_kept(preview: Opened) -> None:
    for file in pictures(preview, PICTURES):
        assert file.read_bytes().startswith(b"\x89PNG")
        assert file.stat().st_size > 20_000
