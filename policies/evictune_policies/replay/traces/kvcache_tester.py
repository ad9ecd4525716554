"""Agentic coding sessions of kv-cache-tester (github.com/callanjfox/kv-cache-tester), JSON.

A file is one session: block_size, hash_id_scope, tool_tokens, system_tokens and requests, each with
t (seconds since the session began), in and out (tokens), hash_ids (of whole blocks of the prompt),
api_time (seconds until the answer was complete) and think_time (seconds from there to the next
request). An entry of type "subagent" holds requests of its own, whose t counts from its beginning;
they run beside the session's.

When sessions began, one against the other, is not told: they begin as a Poisson process
(`Assumptions.conversations_per_second`), in the order of the files' names. Within a session, a
request comes think_time after the answer before. Some requests lack their api_time; then the think
time after them counts from the last known answer, and is taken as the time between the two requests
less the session's median api_time. All models that a session names are taken for one.

Ids are local to a file, so what sessions share, above all tool definitions and system prompt, does
not show. `Assumptions.share_prompts` takes those of equal length for equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import msgspec
import numpy as np

from evictune_policies.algorithms.pool import NONE
from evictune_policies.replay.traces.assemble import Records, assemble, sixty_four_bits
from evictune_policies.replay.traces.assumptions import DEFAULTS, Assumptions
from evictune_policies.replay.traces.files import Integer, decoded, invalid, refuse, whole
from evictune_policies.replay.traces.intern import UInt64, mixed
from evictune_policies.replay.traces.trace import Trace

SESSIONS_PER_SECOND = 1 / 60  # unless `Assumptions` says otherwise


class Request(msgspec.Struct, rename={"prompt_tokens": "in", "output_tokens": "out"}):
    """A request, or with `requests` a subagent. Other fields are passed over."""

    t: float
    type: str = ""
    prompt_tokens: Integer = 0
    output_tokens: Integer | None = None
    hash_ids: list[int] = msgspec.field(default_factory=list)
    api_time: float | None = None
    think_time: float | None = None
    tool_tokens: Integer = 0
    system_tokens: Integer = 0
    requests: list[Request] | None = None


class Session(msgspec.Struct):
    """One file."""

    requests: list[Request]
    block_size: Integer
    id: str = ""
    hash_id_scope: str = "local"
    tool_tokens: Integer = 0
    system_tokens: Integer = 0


@dataclass(frozen=True)
class _Agent:
    """Requests one after the other, with the same tools and system prompt."""

    begins: float
    tool_tokens: int
    system_tokens: int
    requests: list[Request]


def read(path: Path, assumptions: Assumptions = DEFAULTS) -> Trace:
    """Read a session's file, or all `*.json` and `*.json.gz` of a directory.

    Raises TraceError.
    """
    files = session_files(path) if path.is_dir() else [path]
    sessions = [_decoded(file) for file in files]
    records = Records(path, sessions[0].block_size)
    for number, (file, session, begins) in enumerate(
        zip(files, sessions, assumptions.beginnings(len(files), SESSIONS_PER_SECOND), strict=True)
    ):
        records.path = file
        _check_block_size(file, session.block_size, files[0], records.block_tokens)
        tenant = session.id or file.name.split(".")[0]
        salt = 0 if session.hash_id_scope == "global" else number + 1
        typical = median(_api_times(session.requests) or [0.0])
        for agent in _agents(session.requests, session):
            ids = _Ids(records, agent, salt, assumptions.share_prompts)
            _add(records, agent, float(begins), ids, typical, tenant)
    records.path = path
    shared = ", prompts shared" if assumptions.share_prompts else ""
    return assemble(records, name=path.name + shared)


def session_files(directory: Path) -> list[Path]:
    """A directory's session files by name. Raises TraceError if there is none."""
    files = sorted(file for pattern in ("*.json", "*.json.gz") for file in directory.glob(pattern))
    if not files:
        raise refuse(directory, "no file *.json or *.json.gz in it", "give the sessions' directory")
    return files


def _decoded(file: Path) -> Session:
    text = whole(file)
    try:
        return decoded(msgspec.json.Decoder(Session), text)
    except msgspec.DecodeError as error:
        raise invalid(file, text, error) from None


def _check_block_size(file: Path, size: int, first: Path, expected: int) -> None:
    if size < 1:
        raise refuse(file, "is not a block size", "correct it", field="block_size", value=size)
    if size != expected:
        raise refuse(
            file,
            f"is not the {expected} of {first.name}",
            "replay sessions with one block size together",
            field="block_size",
            value=size,
        )


def _api_times(requests: list[Request]) -> list[float]:
    return [request.api_time for request in requests if request.api_time is not None]


def _agents(requests: list[Request], session: Session) -> Iterator[_Agent]:
    """The session's own requests, then each subagent's, and those of its subagents."""
    own = [request for request in requests if request.requests is None]
    yield _Agent(0.0, session.tool_tokens, session.system_tokens, own)
    waiting = [request for request in requests if request.requests is not None]
    while waiting:
        entry = waiting.pop(0)
        nested = entry.requests or []
        for inner in nested:
            inner.t += entry.t
        own = [request for request in nested if request.requests is None]
        waiting += [request for request in nested if request.requests is not None]
        yield _Agent(entry.t, entry.tool_tokens, entry.system_tokens, own)


class _Ids:
    """An agent's ids made 64 bits wide: a file's own, those of shared prompts everybody's."""

    def __init__(self, records: Records, agent: _Agent, salt: int, share: bool) -> None:
        self._file, block_tokens = records.path, records.block_tokens
        self._salt = mixed(np.array([salt], np.uint64))  # 0 stays 0
        self._prompt: UInt64 | None = None
        tools, system = max(0, agent.tool_tokens), max(0, agent.system_tokens)
        longest = max((len(request.hash_ids) for request in agent.requests), default=0)
        blocks = min((tools + system) // block_tokens, longest) if share else 0
        index = np.arange(1, blocks + 1, dtype=np.uint64)
        # Tools are told by their length alone; what follows them, by both lengths.
        names = mixed(np.array([tools, (1 << 63) + system], np.uint64))
        of_tools = index * np.uint64(block_tokens) <= tools
        self._shared = np.where(of_tools, names[0], names[0] ^ names[1]) ^ index

    def of(self, request: Request) -> UInt64:
        """The request's ids. Raises TraceError for one beyond 64 bits."""
        own = sixty_four_bits(self._file, request.hash_ids)
        if self._prompt is None:  # that of the first request; a later one may have changed
            self._prompt = own[: len(self._shared)].copy()
        begin = min(len(own), len(self._prompt))
        equal = np.logical_and.accumulate(own[:begin] == self._prompt[:begin])
        ids = own ^ self._salt
        ids[:begin][equal] = self._shared[:begin][equal]
        return ids


def _add(
    records: Records, agent: _Agent, begins: float, ids: _Ids, typical: float, tenant: str
) -> None:
    """Add an agent's requests, in order of their times."""
    previous, before = NONE, None
    times = np.array([request.t for request in agent.requests])
    records.repairs["unsorted"] += int(np.sum(times < np.maximum.accumulate(times)))
    for request in sorted(agent.requests, key=lambda request: request.t):
        think = request.think_time
        if before is not None and (before.api_time is None or think is None):
            answer = typical if before.api_time is None else before.api_time
            think = max(0.0, request.t - before.t - answer)
            records.repairs["estimated think time"] += 1
        index = records.add(
            begins + request.t,
            request.prompt_tokens,
            request.output_tokens,
            ids.of(request),
            previous=previous,
            think=max(0.0, think or 0.0),
            tenant=tenant,
        )
        if index != NONE:
            previous, before = index, request
