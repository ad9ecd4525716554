"""The real kubectl takes every command of the alerts' pages: it gets as far as calling a server."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.alert_rules import ROOT
from tests.support.docs_pages import commands, inline_commands

PAGES = sorted((ROOT / "docs/runbooks").glob("*.md"))
KUBECTL = Path(sys.executable).with_name("kubectl")
# Nobody listens on port 9.
NOWHERE = ["--server", "http://127.0.0.1:9", "--kubeconfig", "/dev/null"]
MANIFEST = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}"


def called(words: Sequence[str]) -> str:
    """What kubectl says of the command."""
    done = subprocess.run(
        [str(KUBECTL), *NOWHERE, *words[1:]],
        input=MANIFEST,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_kubectl_takes_what_a_page_says(path: Path) -> None:
    for command in (*commands(path), *inline_commands(path)):
        if command.words[0] == "kubectl":
            assert "refused" in called(command.words), command


@pytest.mark.parametrize(
    "wrong", ["get evp --nmespace serving", "roll back a", "logs a --since=1x"]
)
def test_a_wrong_command_is_noticed(wrong: str) -> None:
    assert "refused" not in called(["kubectl", *wrong.split()])
