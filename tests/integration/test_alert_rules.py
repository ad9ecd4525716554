"""The rules before Prometheus: accepted by promtool, and by example when they fire."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.alert_rules import RULES, TESTS
from tests.support.promtool import promtool


def test_promtool_accepts_the_rules() -> None:
    done = promtool("check", "rules", "--lint=all", "--lint-fatal", str(RULES))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.stem)
def test_alerts_fire_when_they_should_and_only_then(path: Path) -> None:
    done = promtool("test", "rules", str(path))
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_examples_notice_a_rule_that_is_wrong(tmp_path: Path) -> None:
    text = RULES.read_text("utf-8")
    assert text.count("for: 5m") > 1
    (tmp_path / "alerts.yaml").write_text(text.replace("for: 5m", "for: 0m"))
    (tmp_path / "tests").mkdir()
    name = "knob-fight.yaml"
    shutil.copy(RULES.parent / "tests" / name, tmp_path / "tests" / name)
    assert promtool("test", "rules", str(tmp_path / "tests" / name)).returncode == 1
