"""Every link of the documentation leads somewhere, and every page is found."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts.docs_hooks import expanded
from tests.support.docs_pages import DOCS, PAGES, ROOT, anchors, links


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings_that_exist(page: Path) -> None:
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert target.is_relative_to(ROOT), link
        if DOCS in page.parents:
            # What lies elsewhere in the repository is not part of the site.
            assert target.is_relative_to(DOCS), link
        if anchor:
            assert anchor in anchors(target), link


def test_every_page_is_in_the_navigation() -> None:
    nav = expanded(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"], DOCS)
    listed = list(_paths(nav))
    assert len(listed) == len(set(listed))
    assert set(listed) == {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}


def test_a_folder_in_the_navigation_stands_for_its_pages(tmp_path: Path) -> None:
    nav = ["index.md", {"Runbooks": "runbooks/"}, {"More": [{"Page": "page.md"}]}]
    assert expanded(nav, tmp_path) == ["index.md", nav[2]]
    (tmp_path / "runbooks").mkdir()
    assert expanded(nav, tmp_path) == ["index.md", nav[2]]
    for name in ("B.md", "A.md", "index.md", "picture.png"):
        (tmp_path / "runbooks" / name).write_text("")
    pages = ["runbooks/index.md", "runbooks/A.md", "runbooks/B.md"]
    assert expanded(nav, tmp_path) == ["index.md", {"Runbooks": pages}, nav[2]]


def _paths(nav: Any) -> Iterator[str]:
    for entry in nav:
        if isinstance(entry, str):
            yield entry
            continue
        for value in entry.values():
            yield from [value] if isinstance(value, str) else _paths(value)
