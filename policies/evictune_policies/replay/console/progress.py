"""Telling on standard error how far something has come, once it takes longer than two seconds."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

PATIENCE_SECONDS = 2.0
"""What is done within this time says nothing."""
TERMINAL_SECONDS = 0.2
"""How often the line in a terminal is renewed."""
PLAIN_SECONDS = 10.0
"""How often a line is written where there is no terminal."""


class Progress:
    """How many of how many steps are done, and which one is being done.

    In a terminal it is one line that renews itself and goes away; elsewhere, plain lines now and
    then. A thread of its own writes it, so a long step shows too.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._terminal = self._stream.isatty()
        self._label = ""
        self._done = 0
        self._total = 0
        self._began = 0.0

    @contextmanager
    def over(self, total: int = 0) -> Iterator[None]:
        """Show progress while the body runs; total: how often it will call `step`, 0: unknown."""
        self._done, self._total = -1, total
        self._began = time.monotonic()
        ended = threading.Event()
        thread = threading.Thread(target=self._show, args=(ended,), name="progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def step(self, label: str) -> None:
        """Say what begins now; what was said before is done."""
        self._done += 1
        self._label = label

    def _show(self, ended: threading.Event) -> None:
        pause = PATIENCE_SECONDS
        shown = False
        while not ended.wait(pause):
            pause = TERMINAL_SECONDS if self._terminal else PLAIN_SECONDS
            self._write(self._text())
            shown = True
        if shown and self._terminal:
            self._write("")

    def _text(self) -> str:
        seconds = time.monotonic() - self._began
        parts = [self._label or "starting", f"{seconds:.0f} s"]
        if self._total > 1:
            parts.insert(0, f"{max(self._done, 0)}/{self._total}")
        return "  ".join(parts)

    def _write(self, text: str) -> None:
        if self._terminal:
            width = shutil.get_terminal_size().columns - 1
            self._stream.write(f"\r\x1b[K{text[:width]}")
        else:
            self._stream.write(f"{text}\n")
        self._stream.flush()
