"""The folder that outlives the container: what was tried there, and who may try.

One small JSON file, written whole, synced and renamed into place before an engine starts with what
it says. A lock that the operating system releases with its holder's end keeps a second engine of
the pod, or one that a person starts beside it, from being taken for a restart of the first.
"""

import fcntl
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from evictune_policies.engine.knobs import MAX_FRACTION, MIN_FRACTION
from evictune_policies.engine.memory import Attempt, Record

SCHEMA = "evictune.io/memory/v1"
DEFAULT = Path("/var/lib/evictune")
_MAX_BYTES = 1 << 20


class StateError(Exception):
    """The folder cannot be relied on.

    Attributes:
        reason: One CamelCase word, a label value of ``evictune_memory_eligible``.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class StateFolder:
    """The record of one pod's engine.

    Args:
        setting: ``EVICTUNE_STATE_DIR``. The default directory counts only as a mount of its own:
            one that an image happened to have would forget with the container.
    """

    def __init__(self, setting: str | None) -> None:
        self._path = Path(setting) if setting else DEFAULT
        self._must_be_mount = not setting
        self._file = self._path / "memory.json"
        self._lock: int | None = None

    def claim(self) -> None:
        """Take the folder until this process ends.

        Raises:
            StateError: ``NoStateFolder``, ``StateFolderUnwritable`` or ``StateFolderInUse``.
        """
        try:
            if not self._path.is_dir() or (self._must_be_mount and not self._path.is_mount()):
                told = f"no volume is mounted at {self._path}: mount an emptyDir there"
                raise StateError("NoStateFolder", told)
            self._lock = os.open(self._path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.lockf(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StateError(
                "StateFolderInUse", f"another engine works with {self._path}: one engine a folder"
            ) from error
        except OSError as error:
            raise _unwritable(self._path, error) from error

    def read(self) -> Record:
        """The record; an empty one when there was none yet.

        Raises:
            StateError: ``StateDamaged``: what is there was not written by this plugin, or torn.
        """
        try:
            with self._file.open("rb") as file:
                return decode(file.read(_MAX_BYTES))
        except FileNotFoundError:
            return Record()
        except (OSError, ValueError, RecursionError) as error:
            raise StateError("StateDamaged", f"{self._file}: {error}") from error

    def write(self, record: Record) -> None:
        """Have the record on the disk, whole, whatever happens next.

        Raises:
            StateError: ``StateFolderUnwritable``; the record before is still there.
        """
        new = self._file.with_suffix(".new")
        try:
            with new.open("wb") as file:
                file.write(encode(record))
                file.flush()
                os.fsync(file.fileno())
            new.replace(self._file)
            directory = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
        except OSError as error:
            raise _unwritable(self._path, error) from error


def encode(record: Record) -> bytes:
    """The file's content."""
    return json.dumps({"schema": SCHEMA, **asdict(record)}, indent=1).encode()


def decode(text: bytes) -> Record:
    """Read the file's content.

    Raises:
        ValueError: When it is anything but a record.
    """
    fields = json.loads(text)
    if not isinstance(fields, dict) or fields.get("schema") != SCHEMA:
        raise ValueError(f"no record of the schema {SCHEMA}")
    try:
        attempt = fields["attempt"]
        return Record(
            attempt=None if attempt is None else _attempt(attempt),
            failed=tuple((_revision(r), _fraction(f)) for r, f in fields["failed"]),
            restarted=tuple(_checked(token, str) for token in fields["restarted"]),
            leaving=_checked(fields["leaving"], bool),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a record: {error!r}") from error


def _attempt(fields: Any) -> Attempt:
    state = fields["state"]
    if state not in ("trying", "confirmed", "dropped"):
        raise ValueError(f"an attempt has the state {state!r:.40}")
    return Attempt(_revision(fields["revision"]), _fraction(fields["fraction"]), state)


def _revision(value: Any) -> int:
    if _checked(value, int) < 1:
        raise ValueError(f"a revision is {value}")
    return int(value)


def _fraction(value: Any) -> float:
    """A fraction within the bounds: a file must not get past them either."""
    if not MIN_FRACTION <= _checked(value, float) <= MAX_FRACTION:
        raise ValueError(f"a fraction is {value}")
    return float(value)


def _checked(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise ValueError(f"{value!r:.40} is no {kind.__name__}")
    return value


def _unwritable(path: Path, error: OSError) -> StateError:
    return StateError("StateFolderUnwritable", f"{path}: {error.strerror or error}")
