"""Options of kubectl and Helm that the documentation shows are options that they have.

What evictune's own programs take is tested in tests/unit/test_docs_commands.py.
"""

from __future__ import annotations

import functools
import re
import subprocess

import pytest

from localcluster.binaries import ensure
from tests.support.docs_pages import PAGES, Command, commands

PROGRAMS = ("helm", "kubectl")
# What is followed by another command's name.
GROUPS = {("auth",), ("create",), ("create", "secret"), ("rollout",)}
_OPTION = re.compile(r"--[a-z][a-z0-9-]*|-[A-Za-z]$")


def shown() -> list[Command]:
    """Each way of calling them, once."""
    found = {}
    for page in PAGES:
        for command in commands(page):
            if command.words[0] in PROGRAMS and command.words[1:2] != ("evictune",):
                found.setdefault(command.words, command)
    return list(found.values())


@functools.cache
def help_of(*words: str) -> str:
    """What `PROGRAM COMMAND --help` says, the options of all commands included."""
    program = str(ensure(words[0]))
    text = ""
    for arguments in ([*words[1:], "--help"], ["options"] if words[0] == "kubectl" else []):
        if arguments:
            done = subprocess.run(
                [program, *arguments], capture_output=True, text=True, check=False, timeout=60
            )
            assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"
            text += done.stdout
    return text


@pytest.mark.parametrize("command", shown(), ids=str)
def test_its_options_exist(command: Command) -> None:
    program, *rest = command.words
    depth = 1
    while tuple(rest[:depth]) in GROUPS:
        depth += 1
    text = help_of(program, *rest[:depth])
    for word in rest[depth:]:
        option = word.partition("=")[0]
        if _OPTION.fullmatch(option):
            assert re.search(rf"(?<![\w-]){re.escape(option)}\b", text), option


def test_an_option_that_is_none_is_found() -> None:
    assert not re.search(r"(?<![\w-])--alll\b", help_of("kubectl", "get"))
    with pytest.raises(AssertionError, match="unknown command"):
        help_of("kubectl", "obtain")
