"""What a person sees of `evictune dashboards preview` in a browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from evictune.preview.boards import NAMES

from tests.support.browser import Opened

# What people look at: kept from the last run.
PICTURES = Path(__file__).resolve().parents[2] / "build/dashboards"
# A panel is not smaller than this, in pixels.
WIDTH, HEIGHT = 150, 100

# Of each panel: what it is called, whether it is drawn, how large, and what is in it.
_PANELS = """
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
_CUT_OFF = """
texts => texts.filter(text => {
  const own = text.getBoundingClientRect();
  const panel = text.closest('.panel').getBoundingClientRect();
  return own.left < panel.left - 1 || own.right > panel.right + 1 || own.bottom > panel.bottom + 1;
}).map(text => text.textContent)
"""
# Pairs of panels of one dashboard, one above the other.
_OVERLAPPING = """
grids => grids.flatMap(grid => {
  const boxes = [...grid.querySelectorAll('.panel')].map(panel =>
    [panel.querySelector('h3').textContent, panel.getBoundingClientRect()]);
  return boxes.flatMap(([one, a], place) => boxes.slice(place + 1)
    .filter(([, b]) => a.left < b.right - 1 && b.left < a.right - 1
      && a.top < b.bottom - 1 && b.top < a.bottom - 1)
    .map(([other]) => [one, other]));
})
"""


def drawn(page: Opened) -> dict[str, bool]:
    """Every panel by dashboard and title, and whether there is something to see in it."""
    found = {}
    for panel in page.page.locator(".panel").evaluate_all(_PANELS):
        inside = {"table": panel["cells"], "stat": len(panel["text"])}
        large = panel["width"] > WIDTH and panel["height"] > HEIGHT
        something = inside.get(panel["kind"], panel["lines"]) > 0
        found[panel["title"]] = panel["state"] == "drawn" and large and something
    return found


def cut_off(page: Opened) -> list[str]:
    """Texts that reach beyond their panel."""
    texts = ".panel h3, .panel .figure, .panel .legend li, .panel svg text"
    found: list[str] = page.page.locator(texts).evaluate_all(_CUT_OFF)
    return found


def overlapping(page: Opened) -> list[list[str]]:
    """Pairs of panels of which one covers the other."""
    found: list[list[str]] = page.page.locator(".grid").evaluate_all(_OVERLAPPING)
    return found


def pictures(page: Opened, directory: Path) -> Iterator[Path]:
    """A picture of each dashboard, written to the directory."""
    for name in NAMES:
        file = directory / f"{name}.png"
        page.page.locator(f"#evictune-{name}").screenshot(path=file)
        yield file
