"""docs/cases.md lists every field case, and what it names exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/cases.md").read_text("utf-8")
CASES = [
    "MN-1",
    "MN-2",
    "MN-4",
    "SI-1",
    "SI-2",
    "SI-5",
    "SI-6",
    "VS-1",
    "VS-3",
    "VS-7",
    "PA-1",
    "PA-3",
    "MF-1",
    "MF-3",
    "MF-4",
    "MF-8",
    "MR-1",
    "MR-4",
    "CL-1",
    "CL-4",
    "OW-1",
    "KF-1",
    "KF-2",
    "KF-5",
    "KF-8",
    "PS-1",
    "PS-3",
    "PK-1",
]


def test_each_of_the_28_cases_has_one_line() -> None:
    listed = re.findall(r"^\| ([A-Z]{2}-\d) \|", PAGE, re.MULTILINE)
    assert sorted(listed) == sorted(CASES)
    assert len(CASES) == 28


def test_every_test_that_is_named_exists() -> None:
    named = re.findall(r"`((?:tests/\w+/)?test_[\w*]+\.py)`", PAGE)
    assert len(named) > 28
    for name in named:
        pattern = name if "/" in name else f"tests/*/{name}"
        assert list(ROOT.glob(pattern)), name


def test_every_numbered_test_of_a_case_is_named() -> None:
    for path in (ROOT / "tests/cases").glob("test_*.py"):
        if re.match(r"test_[a-z]{2}_\d_", path.name):
            assert path.name in PAGE
