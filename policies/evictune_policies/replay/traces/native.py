"""A `Trace` from a request log, and a request log from a `Trace`."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from evictune_policies.algorithms.pool import NONE
from evictune_policies.replay.traces.assemble import Records, assemble
from evictune_policies.replay.traces.files import refuse
from evictune_policies.replay.traces.intern import UInt64, mixed
from evictune_policies.replay.traces.replacing import replacing
from evictune_policies.replay.traces.request_log import (
    SCHEMA,
    Abort,
    Admit,
    Chunk,
    Drop,
    Free,
    Header,
    Log,
    Reset,
    Writer,
)
from evictune_policies.replay.traces.trace import Trace

__all__ = ["SCHEMA", "convert", "read"]

_MICROSECONDS = 1_000_000


@dataclass
class _Request:
    """What the log has said of a request so far. chain: None if it cannot be made out."""

    line: int
    admit: Admit
    chain: UInt64 | None
    reached: int = 0
    free: Free | None = None
    aborted: bool = False


def read(path: Path) -> Trace:
    """Read a request log. Raises TraceError.

    Turns that the log does not tell are inferred from the blocks; a think time is then the time
    from the one request's end to the other's arrival.
    """
    repairs: Counter[str] = Counter()
    log = Log(path, repairs)
    requests: dict[int, _Request] = {}
    for line, event in log:
        match event:
            case Admit():
                _admit(log, requests, line, event)
            case Drop():
                repairs["lost events"] += event.events
            case Reset():
                repairs["reset"] += 1
            case Chunk() | Abort() | Free():
                request = requests.get(event.request)
                if request is None:
                    repairs["unknown request"] += 1
                elif isinstance(event, Chunk):
                    request.reached = max(request.reached, event.first_token + event.tokens)
                elif isinstance(event, Abort):
                    request.aborted = True
                else:
                    _free(log, request, line, event)
    return _trace(log, requests)


def _admit(log: Log, requests: dict[int, _Request], line: int, event: Admit) -> None:
    if event.request in requests:
        log.repairs["duplicate"] += 1
        return
    chain: UInt64 | None = _hashes(log, line, event.hashes)
    if event.same_blocks > 0:
        other = requests.get(event.chain_of)
        if other is None or other.chain is None or len(other.chain) < event.same_blocks:
            chain = None
        else:
            chain = np.concatenate([other.chain[: event.same_blocks], chain])
    requests[event.request] = _Request(line, event, chain)


def _free(log: Log, request: _Request, line: int, event: Free) -> None:
    if request.free is not None:
        log.repairs["duplicate"] += 1
        return
    request.free = event
    if request.chain is not None and event.hashes:
        request.chain = np.concatenate([request.chain, _hashes(log, line, event.hashes)])


def _hashes(log: Log, line: int, packed: bytes) -> UInt64:
    size = log.header.hash_bytes
    if len(packed) % size:
        raise refuse(
            log.path,
            f"bytes are no whole number of hashes of {size} bytes",
            "correct the line or take it out",
            line=line,
            field="hashes",
            value=len(packed),
        )
    rows = np.frombuffer(packed, np.uint8).reshape(-1, size)[:, :8]
    return np.ascontiguousarray(rows).view(">u8").astype(np.uint64).ravel()


def _trace(log: Log, requests: dict[int, _Request]) -> Trace:
    header = log.header
    records = Records(log.path, header.block_tokens, identified=True, repairs=log.repairs)
    index: dict[int, int] = {NONE: NONE}
    finished: list[float] = []
    for number, request in requests.items():
        admit, free = request.admit, request.free
        output = max(0, request.reached - admit.prompt_tokens)
        if free is not None:
            output = free.output_tokens
        elif not request.aborted:
            log.repairs["unfinished"] += 1
        previous = index.get(admit.previous, NONE)
        if previous == NONE and admit.previous != NONE:
            log.repairs["unknown turn"] += 1
        chain, known = request.chain, free.known_tokens if free else None
        if chain is None:
            log.repairs["lost chain"] += 1
            chain, known = np.empty(0, np.uint64), None
        index[number] = records.add(
            admit.time / _MICROSECONDS,
            admit.prompt_tokens,
            output,
            chain,
            ids_of_output=True,
            known_tokens=known,
            previous=previous,
            think=math.nan if admit.think is None else admit.think / _MICROSECONDS,
            tenant=admit.tenant,
            line=request.line,
        )
        if index[number] != NONE:
            ended = free.time if free else None
            finished.append(math.nan if ended is None else ended / _MICROSECONDS)
    return assemble(
        records,
        name=header.name or log.path.name,
        chronological=True,
        infer_turns=not header.turns,
        finished=finished,
    )


def convert(trace: Trace, path: Path) -> None:
    """Write a trace as a request log; gzip if the name ends in .gz.

    What comes back from `read` is the same trace, with times to the microsecond and its contents in
    order of first appearance. The file is there once all is written. Raises TraceError or OSError
    if it cannot be written.
    """
    hashes = mixed(np.arange(trace.distinct, dtype=np.uint64)).astype(">u8")
    holder = np.full(trace.distinct, NONE, np.int64)  # the latest request with that content
    header = Header(name=trace.name, block_tokens=trace.block_tokens, turns=True)
    packed = path.suffix == ".gz"
    with replacing(path) as part, Writer(part, header, packed=packed) as writer:
        for request in range(trace.requests):
            chain = trace.contents[trace.starts[request] : trace.starts[request + 1]]
            prompt = int(trace.prompt_tokens[request])
            at_admission = min(len(chain), prompt // trace.block_tokens)
            # A content's parents are wherever it is: the held ones are the chain's beginning.
            same = int(np.sum(holder[chain[:at_admission]] != NONE))
            time = _microseconds(trace.arrival[request])
            think = float(trace.think[request])
            writer.write(
                Admit(
                    time=time,
                    request=request,
                    prompt_tokens=prompt,
                    hashes=hashes[chain[same:at_admission]].tobytes(),
                    chain_of=int(holder[chain[same - 1]]) if same else NONE,
                    same_blocks=same,
                    tenant=trace.tenants[trace.tenant[request]],
                    previous=int(trace.previous[request]),
                    think=None if math.isnan(think) else _microseconds(think),
                )
            )
            writer.write(
                Free(
                    time=None,
                    request=request,
                    output_tokens=int(trace.output_tokens[request]),
                    known_tokens=int(trace.known_tokens[request]),
                    hashes=hashes[chain[at_admission:]].tobytes(),
                )
            )
            holder[chain] = request


def _microseconds(seconds: float) -> int:
    return round(float(seconds) * _MICROSECONDS)
