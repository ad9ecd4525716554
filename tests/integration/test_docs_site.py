"""The documentation site: it builds strictly, fetches nothing, and picks up runbooks."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# What a browser fetches on its own; links that a reader may follow are another matter.
_FETCHED = re.compile(
    r"<(?:script|img|iframe|source)\b[^>]*\bsrc=[\"']?(?P<src>[^\"'\s>]+)"
    r"|<link\b(?=[^>]*\brel=[\"']?(?:stylesheet|icon|preload|preconnect))[^>]*"
    r"\bhref=[\"']?(?P<href>[^\"'\s>]+)"
)
_STYLED = re.compile(r"url\(([^)]*)\)|@import\s+([^;]+)")


def build(root: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """`mkdocs build`, where no address but a closed one of this machine can be reached."""
    closed = "http://127.0.0.1:9"
    environment = os.environ | {"http_proxy": closed, "https_proxy": closed}
    environment["NO_MKDOCS_2_WARNING"] = "1"
    # Not --quiet: warnings that are not told are not counted, and strict means nothing.
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(site)]
    return subprocess.run(
        command, cwd=root, env=environment, capture_output=True, text=True, check=False, timeout=300
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it."""
    directory = tmp_path_factory.mktemp("site")
    done = build(ROOT, directory)
    assert done.returncode == 0, done.stdout + done.stderr
    return directory


def test_every_page_is_built(site: Path) -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        name = page.relative_to(ROOT / "docs").with_suffix(".html")
        if name.name == "README.html":
            name = name.with_name("index.html")
        assert (site / name).is_file(), name


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    seen = 0
    for page in site.rglob("*.html"):
        for match in _FETCHED.finditer(page.read_text("utf-8")):
            address = match["src"] or match["href"]
            assert not address.startswith(("http:", "https:", "//")), (page, address)
            if not address.startswith("data:"):
                # A server shows 404.html under any path: its addresses begin at the root.
                folder = site if address.startswith("/") else page.parent
                file = folder / address.partition("?")[0].lstrip("/")
                assert file.resolve().is_file(), (page, address)
                seen += 1
    assert seen > 100
    for sheet in site.rglob("*.css"):
        for match in _STYLED.finditer(sheet.read_text("utf-8")):
            address = (match[1] or match[2] or "").strip("'\" ")
            assert not address.startswith(("http:", "https:", "//")), (sheet, address)


def test_search_works_in_pages_that_are_opened_as_files(site: Path) -> None:
    index = (site / "search/search_index.js").read_text("utf-8")
    assert index.startswith("var __index = ")
    for word in ("TargetOutOfReach", "evictune_recomputed_tokens_total", "fleet.mode"):
        assert word in index
    assert 'src="assets/iframe-worker.js"' in (site / "index.html").read_text("utf-8")


def test_presets_are_shown_whole(site: Path) -> None:
    page = (site / "how-to/presets.html").read_text("utf-8")
    assert "--8&lt;--" not in page
    assert page.count("evictune.io/v1alpha1") == len(
        list((ROOT / "policies/presets").glob("*.yaml"))
    )


def test_runbooks_join_and_a_broken_link_fails(tmp_path: Path) -> None:
    for name in ("docs", "scripts", "policies/presets"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    runbook = tmp_path / "docs/runbooks/EvictuneMadeUp.md"
    runbook.parent.mkdir(exist_ok=True)
    runbook.write_text("# EvictuneMadeUp\n\nSee [regimes](../regimes.md).\n")
    done = build(tmp_path, tmp_path / "site")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "runbooks/EvictuneMadeUp.html" in (tmp_path / "site/index.html").read_text("utf-8")
    for broken in ("../regimen.md", "../regimes.md#no-such-heading"):
        runbook.write_text(f"# EvictuneMadeUp\n\nSee [regimes]({broken}).\n")
        done = build(tmp_path, tmp_path / "site")
        assert done.returncode != 0
        assert broken.partition("#")[0] in done.stderr
