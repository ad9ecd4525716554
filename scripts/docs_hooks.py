"""What mkdocs.yml cannot say.

An entry of its nav that ends in / stands for a folder's pages; a folder that has none, or is not
there, leaves no entry. A link to what lies elsewhere in the repository, and so not on the site,
becomes the path in words.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_FIRST = ("index.md", "README.md")

_OUTER = re.compile(r"(?<!!)\[(?P<text>[^\]]*)\]\((?P<path>\.\./[^)#\s]+)(#[^)\s]*)?\)")

Entry = str | dict[str, Any]


def on_config(config: Any) -> Any:
    """MkDocs calls this once mkdocs.yml is read."""
    config.nav = expanded(config.nav, Path(config.docs_dir))
    return config


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """MkDocs calls this for each page."""
    file = Path(page.file.abs_src_path)
    return without_outer_links(markdown, file, Path(config.docs_dir))


def without_outer_links(markdown: str, file: Path, docs: Path) -> str:
    """The page's text with the paths of files outside `docs` in place of links to them."""

    def told(link: re.Match[str]) -> str:
        target = (file.parent / link["path"]).resolve()
        root = docs.parent
        if target.is_relative_to(docs) or not target.is_relative_to(root) or not target.exists():
            return link[0]
        path = target.relative_to(root).as_posix()
        return f"`{path}`" if link["text"].strip("`") == path else f"{link['text']} (`{path}`)"

    return _OUTER.sub(told, markdown)


def expanded(nav: Sequence[Entry], docs: Path) -> list[Entry]:
    """The nav with folders' pages in place of the folders, a folder's index first."""
    found: list[Entry] = []
    for entry in nav:
        title, value = next(iter(entry.items())) if isinstance(entry, dict) else ("", entry)
        if not isinstance(value, str) or not value.endswith("/"):
            found.append(entry)
            continue
        pages = sorted(
            (docs / value).glob("*.md"), key=lambda page: (page.name not in _FIRST, page)
        )
        if pages:
            found.append({title: [page.relative_to(docs).as_posix() for page in pages]})
    return found
