"""Mooncake's request traces: JSON Lines, one request each (Qin et al.: Mooncake, FAST 2025).

    {"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1, ...]}

timestamp is in milliseconds. There is an id for each block of 512 prompt tokens, the last one often
partial; an id is global and stands for all tokens before it too. Outputs have ids only once a later
turn sends them back. Which request is whose next turn is not told; it is taken from the blocks.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec

from evictune_policies.replay.traces.assemble import Records, assemble
from evictune_policies.replay.traces.files import Integer, records
from evictune_policies.replay.traces.trace import Trace

BLOCK_TOKENS = 512


class Request(msgspec.Struct):
    """One line. Other fields are passed over."""

    timestamp: float
    input_length: Integer
    hash_ids: list[int]
    output_length: Integer | None = None


def read(path: Path, block_tokens: int = BLOCK_TOKENS) -> Trace:
    """Read a trace. block_tokens: what an id stands for; traces in this format differ in that.

    Raises TraceError.
    """
    repairs: Counter[str] = Counter()
    gathered = Records(path, block_tokens, repairs=repairs)
    for line, request in records(path, msgspec.json.Decoder(Request), repairs):
        gathered.add(
            request.timestamp / 1000,
            request.input_length,
            request.output_length,
            request.hash_ids,
            line=line,
        )
    return assemble(gathered, name=path.name, chronological=True, infer_turns=True)
