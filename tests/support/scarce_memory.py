"""A node with less memory than it has: somebody else on it takes the rest."""

from __future__ import annotations

import threading
from pathlib import Path
from types import TracebackType
from typing import Self

CHUNK = 128 * 2**20
LOOK_INTERVAL = 0.1


class ScarceMemory:
    """Within the `with` block this machine has `available` bytes left, whoever takes or gives."""

    def __init__(self, available: int) -> None:
        self._available = available
        self._taken: list[bytes] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="scarce memory")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._taken.clear()

    def _run(self) -> None:
        while not self._stop.wait(LOOK_INTERVAL):
            left = memory()["MemAvailable"]
            while left > self._available + CHUNK:
                self._taken.append(b"\x01" * CHUNK)  # written to, so that it is really there
                left -= CHUNK
            while left < self._available and self._taken:
                self._taken.pop()
                left += CHUNK


def memory() -> dict[str, int]:
    """This machine's memory by the names of /proc/meminfo, bytes."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    fields = {line.split(":")[0]: line.split(":")[1].split() for line in lines}
    return {name: int(value[0]) * 1024 for name, value in fields.items() if value[1:] == ["kB"]}
