"""Files that a command is given."""

from __future__ import annotations

import sys
from pathlib import Path

from evictune.console.refusals import RefusedError


def text_of(file: str) -> str:
    """The file's text; of standard input for -. Raises RefusedError."""
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text("utf-8")
    except OSError as error:
        raise RefusedError(f"{file}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise RefusedError(f"{file}: not a text in UTF-8: {error}") from error
