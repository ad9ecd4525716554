"""Telling in the terminal what happens as it happens."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

BOLD, DIM, GREEN, RED, BLUE, YELLOW = "1", "2", "32", "31", "34", "33"
SPINNER_SECONDS = 0.5
"""How often a line in a terminal is renewed."""
QUIET_SECONDS = 10.0
"""Without a terminal, how often something that goes on says so."""


class Narrator:
    """Lines with the time since the start; colours and a moving last line only in a terminal.

    Safe to call from several threads. NO_COLOR is honoured (no-color.org).
    """

    def __init__(self, stream: TextIO = sys.stdout) -> None:
        self._stream = stream
        self._terminal = stream.isatty()
        self._colours = self._terminal and "NO_COLOR" not in os.environ
        self._lock = threading.Lock()
        self._start = time.monotonic()
        self._transient = False
        self._told = 0.0

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._start

    def chapter(self, title: str) -> None:
        """A heading."""
        self._write(f"\n{self._paint(title, BOLD)}")

    def say(self, text: str, colour: str = "") -> None:
        """One line, or several: all but the first are indented to the first's text."""
        first, *rest = text.split("\n")
        lines = [f"{self._clock()} {self._paint(first, colour)}"]
        lines += [f"{' ' * 7} {self._paint(line, colour)}" for line in rest]
        self._write("\n".join(lines))

    def plain(self, text: str) -> None:
        """Text as it is, such as a table."""
        self._write(text)

    def progress(self, text: str) -> None:
        """How far something has come: the terminal's last line, else a line now and then."""
        if self._terminal:
            width = shutil.get_terminal_size().columns - 1
            line = f"{' ' * 7} {text}"[:width]
            with self._lock:
                self._stream.write(f"\r\x1b[K{self._paint(line, DIM)}")
                self._stream.flush()
                self._transient = True
        elif time.monotonic() - self._told > QUIET_SECONDS:
            self._told = time.monotonic()
            self.say(f"  {text}")

    @contextmanager
    def working(self, what: str) -> Iterator[None]:
        """Say what is being done, that it goes on, and how long it took."""
        self.say(f"{what} ...")
        self._told = began = time.monotonic()
        done = threading.Event()

        def remind() -> None:
            while not done.wait(SPINNER_SECONDS):
                self.progress(f"{what}: {time.monotonic() - began:.0f} s")

        thread = threading.Thread(target=remind, name="progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
        seconds = time.monotonic() - began
        if seconds > 2:
            self.say(f"  done in {seconds:.0f} s", DIM)

    def _clock(self) -> str:
        minutes, seconds = divmod(int(self.elapsed), 60)
        return self._paint(f"[{minutes:2}:{seconds:02}]", DIM)

    def _paint(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._colours and code else text

    def _write(self, text: str) -> None:
        with self._lock:
            if self._transient:
                self._stream.write("\r\x1b[K")
                self._transient = False
            self._stream.write(f"{text}\n")
            self._stream.flush()
