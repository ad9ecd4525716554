"""Debian's promtool."""

from __future__ import annotations

import shutil
import subprocess


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run it; the caller looks at the outcome."""
    binary = shutil.which("promtool")
    assert binary, "promtool is not on the PATH: apt-get install --yes prometheus"
    return subprocess.run([binary, *arguments], capture_output=True, text=True, check=False)
