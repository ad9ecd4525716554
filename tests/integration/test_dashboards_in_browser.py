"""The preview of the dashboards in a real Chromium: what a person would see of an hour's play."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from evictune import cli
from evictune.preview.boards import NAMES

from tests.support.browser import Opened, opened
from tests.support.played_run import MAY_BE_EMPTY, Recorded, recorded

ROOT = Path(__file__).resolve().parents[2]
PICTURES = ROOT / "build/dashboards"

# Of each panel: what it is called, whether it is drawn, how large, and what is in it.
PANELS = """
panels => panels.map(panel => {
  const box = panel.getBoundingClientRect();
  const dashboard = panel.closest('section').id.replace('evictune-', '');
  return {
    title: `${dashboard}: ${panel.querySelector('h3').textContent}`,
    state: panel.dataset.state,
    kind: panel.dataset.kind,
    width: box.width,
    height: box.height,
    lines: [...panel.querySelectorAll('path.line, rect')]
      .filter(line => line.getBoundingClientRect().width > 0).length,
    cells: panel.querySelectorAll('td').length,
    text: panel.querySelector('.figure')?.textContent || '',
  };
})
"""
# Texts that reach beyond their panel.
CUT_OFF = """
texts => texts.filter(text => {
  const own = text.getBoundingClientRect();
  const panel = text.closest('.panel').getBoundingClientRect();
  return own.left < panel.left - 1 || own.right > panel.right + 1 || own.bottom > panel.bottom + 1;
}).map(text => text.textContent)
"""
# Pairs of panels of one dashboard, one above the other.
OVERLAPPING = """
grids => grids.flatMap(grid => {
  const boxes = [...grid.querySelectorAll('.panel')].map(panel =>
    [panel.querySelector('h3').textContent, panel.getBoundingClientRect()]);
  return boxes.flatMap(([one, a], place) => boxes.slice(place + 1)
    .filter(([, b]) => a.left < b.right - 1 && b.left < a.right - 1
      && a.top < b.bottom - 1 && b.top < a.bottom - 1)
    .map(([other]) => [one, other]));
})
"""


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
    panels = preview.page.locator(".panel").evaluate_all(PANELS)
    assert len(panels) > 50
    for panel in panels:
        if panel["title"] in MAY_BE_EMPTY and panel["state"] == "none":
            continue
        assert panel["state"] == "drawn", panel
        assert panel["width"] > 150, panel
        assert panel["height"] > 100, panel
        drawn = {"table": panel["cells"], "stat": len(panel["text"])}
        assert drawn.get(panel["kind"], panel["lines"]) > 0, panel


def test_nothing_is_cut_off(preview: Opened) -> None:
    texts = ".panel h3, .panel .figure, .panel .legend li, .panel svg text"
    assert preview.page.locator(texts).evaluate_all(CUT_OFF) == []


def test_no_panel_covers_another(preview: Opened) -> None:
    assert preview.page.locator(".grid").evaluate_all(OVERLAPPING) == []


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


@pytest.mark.parametrize("name", NAMES)
def test_pictures_are_kept(preview: Opened, name: str) -> None:
    """In build/dashboards, beside the page: what people look at."""
    file = PICTURES / f"{name}.png"
    preview.page.locator(f"#evictune-{name}").screenshot(path=file)
    assert file.read_bytes().startswith(b"\x89PNG")
    assert file.stat().st_size > 20_000
