"""Completion in shells: scripts for bash, zsh and fish, and kubectl's protocol for its plugins.

The words come from the parser itself, through argcomplete.
"""

from __future__ import annotations

import io
import os
import shlex
import sys
from collections.abc import Sequence

import argcomplete.io
from argcomplete.finders import CompletionFinder
from argcomplete.shell_integration import shellcode

from evictune.console.parser import PLUGIN, make_parser

# What kubectl reads as the last line: ":4" is "complete no file names", of Cobra's directives
# (https://github.com/spf13/cobra/blob/main/site/content/completions/_index.md).
_NO_FILES = ":4"
_SEPARATOR = "\n"


def script(shell: str) -> str:
    """The script that registers completion for both names of the command."""
    return str(shellcode(["evictune", PLUGIN], shell=shell))


class _Quiet(CompletionFinder):
    """Without argcomplete's debug stream: it takes file descriptor 9, whosesoever that is."""

    def _init_debug_stream(self) -> None:
        argcomplete.io.debug_stream = io.StringIO()


def words_after(arguments: Sequence[str]) -> list[str]:
    """What may stand in place of the last argument, after those before it."""
    line = shlex.join(["evictune", *arguments[:-1]]) + " " + (arguments[-1] if arguments else "")
    found = io.StringIO()
    asked = {"COMP_LINE": line, "COMP_POINT": str(len(line)), "_ARGCOMPLETE": "1"}
    os.environ.update(asked | {"_ARGCOMPLETE_IFS": _SEPARATOR, "_ARGCOMPLETE_SUPPRESS_SPACE": "1"})
    _Quiet()(
        make_parser(),
        always_complete_options=False,  # as kubectl: options once a dash is written
        exit_method=lambda code: None,
        output_stream=found,
    )
    return [each.rstrip() for each in found.getvalue().split(_SEPARATOR) if each.strip()]


def kubectl_complete() -> int:
    """The program `kubectl_complete-evictune`, which kubectl calls to complete its plugin."""
    print(*words_after(sys.argv[1:]), _NO_FILES, sep="\n")
    return 0
