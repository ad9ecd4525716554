"""On flat streams, LRU, LFU, S3-FIFO and SIEVE agree with libCacheSim access by access.

A flat stream is one where every object is a chain of its own, of one block, and no block is held
between accesses. Nothing has to be explained away: all four agree exactly. That of several possible
readings libCacheSim's is the one that is implemented is said where it is:

- LFU: among equally frequent objects the least recently used goes; a count ends with its object.
- S3-FIFO: the authors' implementation, not the paper's algorithm 1 to the letter (`s3_fifo`).
  libCacheSim refuses objects as large as the small queue, so that pools of fewer than twenty blocks
  cannot be compared: it caches nothing there.
- SIEVE: when the youngest object is evicted, the hand begins again at the oldest, although others
  will have joined by then.

The LRU of the comparison is each policy that is LRU on a flat stream.
"""

from __future__ import annotations

import libcachesim
import numpy as np
import pytest
from evictune_policies.algorithms.catalog import POLICIES, Chains, Cost, Setting
from evictune_policies.algorithms.operations import Visit, free, hit, start, victim
from evictune_policies.algorithms.pool import NONE, Pool, clear, fill, new_pool
from evictune_policies.replay.compiled import compiled
from numpy.typing import NDArray

Hits = NDArray[np.bool_]
Stream = NDArray[np.int32]

OBJECTS = 4000
ACCESSES = 60_000
CAPACITIES = (20, 37, 64, 301, 1500)
THEIRS = {
    "lru": libcachesim.LRU,
    "prefix-lru": libcachesim.LRU,
    "greedy-dual-size": libcachesim.LRU,
    "lfu": libcachesim.LFU,
    "s3-fifo": libcachesim.S3FIFO,
    "sieve": libcachesim.Sieve,
}


def _zipf(dice: np.random.Generator, exponent: float = 1.0) -> Stream:
    weights = 1.0 / np.arange(1, OBJECTS + 1) ** exponent
    return dice.choice(OBJECTS, ACCESSES, p=weights / weights.sum()).astype(np.int32)


def _loops(dice: np.random.Generator) -> Stream:
    """Rounds over as many objects as fit some of the pools, one after the other."""
    sizes = (18, 25, 70, 350, 1400)
    rounds = [np.tile(np.arange(size), ACCESSES // len(sizes) // size + 1) for size in sizes]
    return np.concatenate(rounds).astype(np.int32)[:ACCESSES]


def _scans(dice: np.random.Generator) -> Stream:
    """A popular few, and now and then a sweep over many that come once each."""
    popular = _zipf(dice, 1.2) % 200
    for begin in range(500, ACCESSES, 1500):
        popular[begin : begin + 600] = 200 + (begin + np.arange(600)) % (OBJECTS - 200)
    return popular


def _shifting(dice: np.random.Generator) -> Stream:
    """What is popular changes, and what was popular comes back."""
    return ((_zipf(dice, 1.1) + np.arange(ACCESSES) // 5000 % 4 * 700) % OBJECTS).astype(np.int32)


STREAMS = {"zipf": _zipf, "loops": _loops, "scans": _scans, "shifting": _shifting}


def access_all(state: object, pool: Pool, stream: Stream, hits: Hits) -> None:
    """A flat cache: every access holds its object's block, and lets go of it at once."""
    used = 0
    for index in range(len(stream)):
        visit = Visit(float(index), index, 0, 1, 1)
        block = pool.resident[stream[index]]
        if block != NONE:
            hits[index] = True
            hit(state, pool, block, visit)
        else:
            if used < len(pool.content):
                block = used
                used += 1
            else:
                block = victim(state, pool)
                clear(pool, block)
            fill(pool, block, stream[index])
            start(state, pool, block, visit)
        free(state, pool, block, visit)


def _our_hits(name: str, stream: Stream, capacity: int) -> Hits:
    alone = np.full(OBJECTS, NONE, np.int32)
    chains = Chains(
        starts=np.array([0, 0]),
        contents=np.zeros(0, np.int32),
        parent=alone,
        depth=np.zeros(OBJECTS, np.int32),
        prompt_tokens=np.ones(1, np.int64),
        tokens=np.ones(1, np.int64),
        final=np.ones(1, np.bool_),
    )
    state = POLICIES[name].build(Setting(capacity, 1, chains, cost=Cost(1.0, 0.0)))
    hits = np.zeros(len(stream), np.bool_)
    compiled(access_all)(state, new_pool(capacity, alone, chains.depth), stream, hits)
    return hits


def _their_hits(name: str, stream: Stream, capacity: int) -> Hits:
    cache = THEIRS[name](capacity, hashpower=14)
    request = libcachesim.Request()
    request.obj_size = 1
    hits = np.zeros(len(stream), np.bool_)
    for index, number in enumerate(stream.tolist()):
        request.clock_time, request.obj_id = index, number + 1
        hits[index] = cache.get(request)
    return hits


@pytest.mark.parametrize("name", THEIRS)
def test_every_access_hits_here_if_it_hits_there(name: str) -> None:
    for kind, make in STREAMS.items():
        stream = make(np.random.default_rng(2026))
        for capacity in CAPACITIES:
            ours = _our_hits(name, stream, capacity)
            theirs = _their_hits(name, stream, capacity)
            differing = np.flatnonzero(ours != theirs)
            assert len(differing) == 0, f"{kind}, {capacity} blocks: first at {differing[0]}"


def test_the_streams_tell_the_policies_apart() -> None:
    """Agreement would mean little if everybody had the same hits."""
    stream = _scans(np.random.default_rng(2026))
    hits = {name: int(_our_hits(name, stream, 64).sum()) for name in ("lru", "lfu", "sieve")}
    hits["s3-fifo"] = int(_our_hits("s3-fifo", stream, 64).sum())
    assert len(set(hits.values())) == 4
    assert 0 < min(hits.values()) < max(hits.values()) < ACCESSES
