"""Writing a file as a whole: whoever looks at it finds the old one or the new one, never a part."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Where to write what is to stand at `path`; it does so once the body is through.

    Until then it is a hidden file beside it, ending in `.part`, which goes away if the body fails.
    A killed process leaves that one at worst, and the next one that writes takes it away. What is
    no regular file (/dev/stdout, a pipe) is written at once.

    Raises OSError, with the path, where that cannot be done.
    """
    try:
        if path.exists() and not path.is_file():
            yield path
        else:
            yield from _beside(path.resolve())  # a link stays one
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


def _beside(target: Path) -> Iterator[Path]:
    _sweep(target)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        part.touch()  # so that what cannot be written is told with the name that was given
        yield part
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def _sweep(target: Path) -> None:
    """Take away what killed processes have left."""
    for left in target.parent.glob(f".{_literal(target.name)}.*.part"):
        process = left.name.removesuffix(".part").rpartition(".")[2]
        if process.isdigit() and not Path(f"/proc/{process}").exists():
            left.unlink(missing_ok=True)


def _literal(name: str) -> str:
    """As a pattern that finds this name alone."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)
