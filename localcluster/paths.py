"""Where localcluster keeps things between runs: the XDG cache directory of this user."""

from __future__ import annotations

import os
from pathlib import Path

# The directory that holds the `localcluster` package, for starting its modules with `python -m`.
SOURCE_ROOT = Path(__file__).resolve().parents[1]


def cache_directory() -> Path:
    """`${XDG_CACHE_HOME:-~/.cache}/evictune`, made if missing."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    path = Path(base) / "evictune"
    path.mkdir(parents=True, exist_ok=True)
    return path


def run_directory() -> Path:
    """Where the ledgers of running clusters are: `run` in the cache directory."""
    path = cache_directory() / "run"
    path.mkdir(mode=0o700, exist_ok=True)
    return path
