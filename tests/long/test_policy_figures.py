"""docs/policies.md shows what the policies do now, not what they once did."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_what_the_page_says_of_mooncake_is_what_is_measured() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "scripts.policy_figures", "--check"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
