"""What mkdocs.yml cannot say: an entry of its nav that ends in / stands for a folder's pages.

A folder that has none, or is not there, leaves no entry.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

_FIRST = ("index.md", "README.md")

Entry = str | dict[str, Any]


def on_config(config: Any) -> Any:
    """MkDocs calls this once mkdocs.yml is read."""
    config.nav = expanded(config.nav, Path(config.docs_dir))
    return config


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
