"""The knob document on disk: what it wants now, by polling.

Kubelet mounts a ConfigMap as a directory whose files are links through ``..data``, and replaces
that link atomically; an optional ConfigMap that is deleted leaves the directory empty. So: no
file, nothing wanted. A stat per poll tells whether there is something new to read.
"""

import socket
import stat
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from evictune_policies.engine.knobs import (
    MAX_BYTES,
    STOCK,
    Document,
    DocumentRefusedError,
    Knobs,
    parse,
)

FILE_NAME = "knobs.json"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be in force. Revision 0 is stock LRU for want of a valid document."""

    revision: int = 0
    knobs: Knobs = STOCK


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why the document now on disk is not in force: a CamelCase word, and a sentence."""

    reason: str
    message: str


def place_and_pod(environ: Mapping[str, str]) -> tuple[Path, str]:
    """Where this process finds its knob document, and as which pod it reads it."""
    directory = Path(environ.get("EVICTUNE_KNOBS_DIR") or "/etc/evictune/knobs")
    return directory, environ.get("EVICTUNE_POD_NAME") or socket.gethostname()


class KnobSource:
    """Reads the knob document of one directory for one pod.

    Args:
        directory: Where ``knobs.json`` may be.
        pod: Name of the pod, to find its own entry.

    Attributes:
        refusal: Set while the document now on disk is refused or expired.
        refused: How many documents were refused so far, by reason.
    """

    def __init__(self, directory: Path, pod: str) -> None:
        self._path = directory / FILE_NAME
        self._pod = pod
        self._seen: tuple[int, int, int] | None = None
        self._document: Document | None = None
        self.refusal: Refusal | None = None
        self.refused: Counter[str] = Counter()

    def poll(self, now: float) -> Wanted:
        """Look at the file and the clock.

        Args:
            now: Seconds since the epoch.
        """
        try:
            self._look()
        except DocumentRefusedError as error:
            self._refuse(error.reason, str(error))
        except OSError as error:
            self._seen = None  # try again: what is wrong may end without the file changing
            refusal = Refusal("Unreadable", f"{self._path}: {error.strerror or error}")
            if refusal != self.refusal:
                self._refuse(refusal.reason, refusal.message)
        return self._in_force(now)

    @property
    def document(self) -> Document | None:
        """The last valid document, also past its expiry, or when what is there now is refused."""
        return self._document

    def _look(self) -> None:
        """Take over the document if the file is not the one seen last."""
        try:
            status = self._path.stat()
        except (FileNotFoundError, NotADirectoryError):
            self._seen = self._document = self.refusal = None
            return
        signature = (status.st_mtime_ns, status.st_ino, status.st_size)
        if signature == self._seen:
            return
        self._seen = signature
        if not stat.S_ISREG(status.st_mode):
            raise DocumentRefusedError("Unreadable", f"{self._path} is not a regular file")
        with self._path.open("rb") as file:
            text = file.read(MAX_BYTES + 1)
        self._document = parse(text, self._pod)
        self.refusal = None

    def _in_force(self, now: float) -> Wanted:
        """The last valid document while it holds, else stock LRU."""
        document = self._document
        if document is None:
            return Wanted()
        if now >= document.expires:
            if self.refusal is None:
                late = now - document.expires
                self._refuse("Expired", f"revision {document.revision} expired {late:.0f} s ago")
            return Wanted()
        if self.refusal is not None and self.refusal.reason == "Expired":
            self.refusal = None  # the clock was set back
        return Wanted(document.revision, document.knobs)

    def _refuse(self, reason: str, message: str) -> None:
        self.refusal = Refusal(reason, message)
        self.refused[reason] += 1
