"""A trace on which T-LRU shows: long conversations, and one-shot prompts that push them out.

As in docs/explanation/demo.md, in Mooncake's format and so in blocks of 512 tokens:
conversations over
documents of 38 blocks that grow by two blocks a turn, and after each turn six one-shot prompts of
six blocks. After twelve turns a new session over the same document begins.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path

BLOCK = 512
DOCUMENT, TURN, ONE_SHOT = 38, 2, 6
SESSION_TURNS = 12
ONE_SHOTS_A_TURN = 6


def write_pressure(path: Path, conversations: int = 3, turns: int = 36) -> Path:
    """Write the trace; 7 requests for each conversation and turn."""
    lines = [json.dumps(each) for each in _requests(conversations, turns)]
    path.write_text("\n".join(lines) + "\n")
    return path


def _requests(conversations: int, turns: int) -> Iterator[dict[str, object]]:
    fresh, time = count(), count(0, 100)
    documents = [[next(fresh) for _ in range(DOCUMENT)] for _ in range(conversations)]
    chains = [list(document) for document in documents]
    for turn in range(turns):
        for index, chain in enumerate(chains):
            # At different points of their sessions, so that the load is about the same always.
            if (turn + index * SESSION_TURNS // conversations) % SESSION_TURNS == 0:
                chain[:] = documents[index]
            chain += [next(fresh) for _ in range(TURN)]
            yield _request(next(time), [*chain, next(fresh)])
            for _ in range(ONE_SHOTS_A_TURN):
                yield _request(next(time), [next(fresh) for _ in range(ONE_SHOT + 1)])


def _request(time: int, ids: list[int]) -> dict[str, object]:
    # The last block is half full, so that all whole ones may be hits.
    return {
        "timestamp": time,
        "input_length": len(ids) * BLOCK - BLOCK // 2,
        "output_length": 1,
        "hash_ids": ids,
    }
