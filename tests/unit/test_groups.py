"""Behaviours that share an engine or an installation go to one worker, and to no other."""

from __future__ import annotations

import pytest

from tests.support.artefacts import BEHAVIOURS
from tests.support.groups import ENGINE, LIFE, ORDER, group_of


@pytest.mark.parametrize(
    ("nodeid", "group"),
    [
        ("tests/e2e/recommend/test_recommend.py::test_a", "engine"),
        ("tests/e2e/closed_loop/test_closed_loop.py::test_b[tests/e2e/wire]", "engine"),
        ("tests/e2e/wire/test_wire.py::test_c", "life"),
        ("tests/e2e/images/test_images.py::test_d", "tests/e2e/images/test_images.py"),
        ("tests/e2e/test_conformance.py::test_e[x]", "tests/e2e/test_conformance.py"),
        ("tests/integration/test_wire.py::test_f", "tests/integration/test_wire.py"),
    ],
)
def test_the_group_of_a_test(nodeid: str, group: str) -> None:
    assert group_of(nodeid) == group


@pytest.mark.parametrize("behaviour", ORDER)
def test_a_behaviour_is_a_folder_with_a_test(behaviour: str) -> None:
    assert (BEHAVIOURS / behaviour / f"test_{behaviour}.py").is_file()
    assert (behaviour in ENGINE) != (behaviour in LIFE)
