"""Directories that change in one step, laid out as kubelet's volumes are.

    mount/..2026_11_29_10_00_00.123456/key    the files of one version
    mount/..data -> ..2026_11_29_...          swapped by rename
    mount/key -> ..data/key                   what a program opens

Source: pkg/volume/util/atomic_writer.go of Kubernetes. A program that watches a mount sees the
same changes as on a real node.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

_DATA = "..data"
_DATA_NEXT = "..data_tmp"


@dataclass(frozen=True)
class File:
    """One file of a volume."""

    content: bytes
    mode: int = 0o644


Payload = Mapping[str, File]
"""The files of a volume by their relative path."""


class AtomicDirectory:
    """Writes payloads to a directory, each as a whole, and only when it differs from the last."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._written: dict[str, File] | None = None
        directory.mkdir(parents=True, exist_ok=True)

    def write(self, payload: Payload) -> bool:
        """Make the directory hold exactly this payload; True if anything changed."""
        if self._written == payload:
            return False
        version = self._new_version(payload)
        previous = self._current()
        next_link = self._directory / _DATA_NEXT
        next_link.unlink(missing_ok=True)
        next_link.symlink_to(version.name)
        next_link.rename(self._directory / _DATA)
        self._link_names({PurePosixPath(path).parts[0] for path in payload})
        if previous is not None:
            shutil.rmtree(previous)
        self._written = dict(payload)
        return True

    def _new_version(self, payload: Payload) -> Path:
        stamp = datetime.now(UTC).strftime("..%Y_%m_%d_%H_%M_%S.")
        version = Path(tempfile.mkdtemp(prefix=stamp, dir=self._directory))
        version.chmod(0o755)
        for path, file in payload.items():
            target = version / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.content)
            target.chmod(file.mode)
        return version

    def _current(self) -> Path | None:
        link = self._directory / _DATA
        return self._directory / link.readlink() if link.is_symlink() else None

    def _link_names(self, names: set[str]) -> None:
        for entry in self._directory.iterdir():
            if not entry.name.startswith("..") and entry.name not in names:
                entry.unlink()
        for name in names:
            link = self._directory / name
            if not link.is_symlink():
                link.symlink_to(f"{_DATA}/{name}")
