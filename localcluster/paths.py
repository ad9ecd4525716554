"""Where localcluster keeps things between runs: the XDG cache directory of this user."""

from __future__ import annotations

import os
from pathlib import Path

# The directory that holds the `localcluster` package, for starting its modules with `python -m`.
SOURCE_ROOT = Path(__file__).resolve().parents[1]


def cache_directory() -> Path:
    """`${XDG_CACHE_HOME:-~/.cache}/evictune`, made if missing.

    A relative XDG_CACHE_HOME is ignored, as the XDG Base Directory Specification demands. Raises
    OSError.
    """
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    path = (named if named.is_absolute() else _home() / ".cache") / "evictune"
    path.mkdir(parents=True, exist_ok=True)
    return path


def run_directory() -> Path:
    """Where the ledgers of running clusters are: `run` in the cache directory."""
    path = cache_directory() / "run"
    path.mkdir(mode=0o700, exist_ok=True)
    return path


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError as error:  # HOME is not set, and this user has no entry in passwd
        raise OSError(f"{error} Set HOME, or XDG_CACHE_HOME to an absolute path.") from None
