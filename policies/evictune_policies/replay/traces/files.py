"""Reading trace files: compressed or not, line by line, and refusing with one clear line."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec

T = TypeVar("T")
U = TypeVar("U")
MAX_INTEGER = 2**53  # far beyond any length, and sums of such still fit into 64 bits
Integer = Annotated[int, msgspec.Meta(ge=-MAX_INTEGER, le=MAX_INTEGER)]

CUT_OFF = (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile)
"""What unpacking raises where a packed file was cut off or damaged."""
_GZIP, _XZ, _BYTE_ORDER_MARK = b"\x1f\x8b", b"\xfd7zXZ\x00", b"\xef\xbb\xbf"


class TraceError(ValueError):
    """A trace that cannot be read. Its text is one line: file, line, field, value, remedy."""


def refuse(
    path: Path | str,
    problem: str,
    remedy: str,
    *,
    line: int | None = None,
    field: str = "",
    value: object = msgspec.UNSET,
) -> TraceError:
    """The error to raise."""
    where = str(path) + (f", line {line}" if line is not None else "")
    what = f"{field}: " if field else ""
    shown = "" if value is msgspec.UNSET else f"{_shortened(value)} "
    return TraceError(f"{where}: {what}{shown}{problem}; {remedy}")


def printable(text: str) -> str:
    """A name that can be shown: what would break a line, or steer a terminal, is escaped."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def _shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def opened(path: Path) -> io.BufferedIOBase:
    """The file's bytes, unpacked if it is gzip or xz, whatever its name.

    Raises TraceError if it cannot be opened. A trace is read more than once, first to find out its
    format, which a pipe does not allow; and to open one that nobody writes would take forever.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        raise refuse(path, "is no regular file", "write what comes out of it to a file first")
    try:
        with path.open("rb") as file:
            start = file.read(6)
        if start.startswith(_GZIP):
            return gzip.open(path)
        return lzma.open(path) if start.startswith(_XZ) else path.open("rb")
    except OSError as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: OSError) -> TraceError:
    return refuse(path, error.strerror or str(error), "give a file that can be read")


def beginning(path: Path, size: int) -> bytes:
    """At most the first `size` bytes; of a packed file that was cut off, what can be unpacked.

    Raises TraceError.
    """
    start = b""
    with opened(path) as file:
        try:
            while len(start) < size and (more := file.read1(size - len(start))):
                start += more
        except CUT_OFF:
            pass  # `lines` and `whole` say so
        except OSError as error:
            raise _unreadable(path, error) from None
    return start


def whole(path: Path) -> bytes:
    """All bytes of a file that is of no use in part."""
    with opened(path) as file:
        try:
            return file.read().removeprefix(_BYTE_ORDER_MARK)
        except CUT_OFF as error:
            raise refuse(path, f"cannot be unpacked ({error})", "copy the file again") from None
        except OSError as error:
            raise _unreadable(path, error) from None


def lines(path: Path, repairs: Counter[str]) -> Iterator[tuple[int, bytes, bool]]:
    """Each line that is not blank: its number from 1, its bytes, whether it is complete.

    The last line is incomplete if no newline ends it. A compressed file that was cut off gives
    what can be unpacked, and counts as truncated.
    """
    number = 0
    with opened(path) as file:
        while True:
            try:
                line = file.readline()
            except CUT_OFF:
                repairs["truncated"] += 1
                return
            except OSError as error:
                raise _unreadable(path, error) from None
            if not line:
                return
            number += 1
            if number == 1:
                line = line.removeprefix(_BYTE_ORDER_MARK)
            if line.strip():
                yield number, line, line.endswith(b"\n")


def records(
    path: Path, decoder: msgspec.json.Decoder[T], repairs: Counter[str], skip: int = 0
) -> Iterator[tuple[int, T]]:
    """The JSON record on each line, with the line's number; the first `skip` lines are left out.

    A last line that is cut off is dropped and counted as truncated. Raises TraceError for any
    other line that is not such a record.
    """
    for number, line, complete in islice(lines(path, repairs), skip, None):
        try:
            yield number, decoded(decoder, line)
        except msgspec.DecodeError as error:
            if complete or isinstance(error, msgspec.ValidationError):
                raise invalid(path, line, error, number) from None
            repairs["truncated"] += 1


def decoded(decoder: msgspec.json.Decoder[U], text: bytes) -> U:
    """The value that JSON text stands for. Raises msgspec.DecodeError, also for what is nested too
    deep to be read."""
    try:
        return decoder.decode(text)
    except RecursionError:
        raise msgspec.ValidationError("nested too deep") from None


def invalid(
    path: Path, text: bytes, error: msgspec.DecodeError, line: int | None = None
) -> TraceError:
    """The refusal of JSON text that msgspec did not accept."""
    remedy = "correct it or take it out"
    if not isinstance(error, msgspec.ValidationError):
        return refuse(path, f"not JSON ({error})", remedy, line=line)
    problem, _, place = str(error).partition(" - at `$")
    place = place.removesuffix("`")
    value = _at(text, place)
    problem = problem[:1].lower() + problem[1:]
    if value is not msgspec.UNSET:
        problem = f"({problem})"
    return refuse(path, problem, remedy, line=line, field=place.lstrip("."), value=value)


def _at(text: bytes, place: str) -> object:
    """What stands at a place such as `.input_length`; UNSET if that does not name one value."""
    try:
        value = json.loads(text)  # more lenient than msgspec: it reads what that refused
    except (ValueError, RecursionError):
        return msgspec.UNSET
    steps = re.findall(r"\.(\w+)|\[(\d+|\.\.\.)\]", place)
    try:
        for name, index in steps:  # "[...]" is any index, and no place
            value = value[name] if name else value[int(index)]
    except (KeyError, IndexError, TypeError, ValueError):
        return msgspec.UNSET
    return value if steps else msgspec.UNSET
