"""The native trace format: an engine's request log. docs/reference/trace-format.md defines it.

JSON Lines, gzip at will: a header, then events in the order in which they happened, each an array
that begins with its name. No text and no token ids: blocks appear as salted, chained hashes.
"""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, cast

import msgspec

from evictune_policies.replay.traces.files import (
    Integer,
    decoded,
    invalid,
    lines,
    records,
    refuse,
)

SCHEMA = "evictune.io/trace/v1"


class Header(msgspec.Struct, omit_defaults=True, kw_only=True):
    """The first line.

    schema: SCHEMA; anything else is not this format, or another version of it.
    block_tokens: tokens that a block holds. pool_blocks: blocks that the engine has; 0: unknown.
    hash_bytes: length of a block's hash, at least 8; the first 8 count.
    began: time 0 of the events, RFC 3339. engine: what wrote the log, such as "vllm 0.32.0".
    turns: whether `Admit.previous` says whose next turn a request is; if not, readers may infer it.
    """

    schema: str = ""
    name: str = ""
    block_tokens: Integer
    pool_blocks: Integer = 0
    hash_bytes: Integer = 8
    began: str = ""
    engine: str = ""
    turns: bool = False


class Event(msgspec.Struct, array_like=True):
    """time: microseconds since the log began. request: a number that no other one has."""


class Admit(Event, tag="admit"):
    """A request came. Its chain, as far as it is known: the first same_blocks of the chain of an
    earlier request, `chain_of` (-1: none), then `hashes`. previous: the turn before (-1: none, or
    not known). think: microseconds from the end of that to this arrival."""

    time: Integer
    request: Integer
    prompt_tokens: Integer
    hashes: bytes = b""
    chain_of: Integer = -1
    same_blocks: Integer = 0
    tenant: str = "all"
    previous: Integer = -1
    think: Integer | None = None


class Allocate(Event, tag="allocate"):
    """Blocks were given to a request. cached_tokens: what the look-up found, 0 if there was none.
    free_blocks: how many the pool has left."""

    time: Integer
    request: Integer
    cached_tokens: Integer
    new_blocks: Integer
    free_blocks: Integer


class Chunk(Event, tag="chunk"):
    """Tokens first_token .. first_token + tokens - 1 of a request were scheduled."""

    time: Integer
    request: Integer
    first_token: Integer
    tokens: Integer


class Preempt(Event, tag="preempt"):
    """A request lost its blocks and waits again."""

    time: Integer
    request: Integer


class Abort(Event, tag="abort"):
    """A request ended before its answer was complete. If it had blocks, `Free` follows."""

    time: Integer
    request: Integer


class Free(Event, tag="free"):
    """A request ended and let go of its blocks. hashes: of its chain, what `Admit` did not have,
    the output included. known_tokens: tokens that the whole chain covers; its last block may be
    partial. time: None where it is not known."""

    time: Integer | None
    request: Integer
    output_tokens: Integer
    known_tokens: Integer
    hashes: bytes = b""


class Reset(Event, tag="reset"):
    """The prefix cache was emptied."""

    time: Integer


class KnobChange(Event, tag="knobs"):
    """A policy came into force."""

    time: Integer
    revision: Integer
    policy: str
    xi_tokens: Integer | None = None
    q_hat_tokens: Integer | None = None


class Drop(Event, tag="drop"):
    """So many events before this one are missing: the writer could not keep up."""

    time: Integer
    events: Integer


AnyEvent = Admit | Allocate | Chunk | Preempt | Abort | Free | Reset | KnobChange | Drop


class Log:
    """A log being read: its header, and its events as they are iterated."""

    def __init__(self, path: Path, repairs: Counter[str] | None = None) -> None:
        """Read the header. Raises TraceError if there is none, or it is not one of this format."""
        self.path = path
        self.repairs = Counter[str]() if repairs is None else repairs
        text = next((line for _, line, _ in lines(path, Counter())), b"")
        try:
            self.header = decoded(msgspec.json.Decoder(Header), text)
        except msgspec.DecodeError as error:
            raise invalid(path, text, error, 1) from None
        header = self.header
        if header.schema != SCHEMA:
            raise self._refused("schema", header.schema, f"is not {SCHEMA}", "convert it")
        if header.block_tokens < 1:
            raise self._refused("block_tokens", header.block_tokens, "is not a size", "correct it")
        if header.hash_bytes < 8:
            raise self._refused("hash_bytes", header.hash_bytes, "is below 8", "log longer hashes")

    def _refused(self, field: str, value: object, problem: str, remedy: str) -> ValueError:
        return refuse(self.path, problem, remedy, line=1, field=field, value=value)

    def __iter__(self) -> Iterator[tuple[int, AnyEvent]]:
        """Each event with its line. Raises TraceError for a line that is none."""
        decoder = msgspec.json.Decoder(AnyEvent)
        return cast("Iterator[tuple[int, AnyEvent]]", records(self.path, decoder, self.repairs, 1))


class Writer:
    """Writes a log; by default with gzip if the file's name ends in .gz. A context manager."""

    def __init__(self, path: Path, header: Header, *, packed: bool | None = None) -> None:
        """Write the header. packed: with gzip. Raises TraceError if the file cannot be written."""
        self._encoder = msgspec.json.Encoder()
        self._file: IO[bytes]
        try:
            self._file = path.open("wb")
        except OSError as error:
            raise refuse(path, error.strerror or str(error), "give another file") from None
        self._packed = None
        if packed is None:
            packed = path.suffix == ".gz"
        if packed:  # neither name nor time: the same log gives the same bytes
            self._packed = gzip.GzipFile("", "wb", fileobj=self._file, mtime=0)
        header.schema = SCHEMA
        self._line(header)

    def write(self, event: AnyEvent) -> None:
        """Append an event."""
        self._line(event)

    def _line(self, record: Header | AnyEvent) -> None:
        (self._packed or self._file).write(self._encoder.encode(record) + b"\n")

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._packed is not None:
            self._packed.close()
        self._file.close()
