"""Every link of the documentation leads somewhere, and every page is found."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts.docs_hooks import expanded, without_outer_links
from tests.support.docs_pages import DOCS, PAGES, ROOT, anchors, links


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings_that_exist(page: Path) -> None:
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert target.is_relative_to(ROOT), link
        if anchor and target.suffix == ".md":
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


def test_links_to_the_rest_of_the_repository_become_words_on_the_site(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    for name in ("docs/runbooks/page.md", "docs/other.md", "rules/alerts.yaml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    text = (
        "[the rules](../../rules/alerts.yaml), [rules/alerts.yaml](../../rules/alerts.yaml#x), "
        "[a page](../other.md#top), [gone](../../rules/none.yaml)"
    )
    assert without_outer_links(text, docs / "runbooks/page.md", docs) == (
        "the rules (`rules/alerts.yaml`), `rules/alerts.yaml`, "
        "[a page](../other.md#top), [gone](../../rules/none.yaml)"
    )


def _paths(nav: Any) -> Iterator[str]:
    for entry in nav:
        if isinstance(entry, str):
            yield entry
            continue
        for value in entry.values():
            yield from [value] if isinstance(value, str) else _paths(value)
