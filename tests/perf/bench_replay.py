"""What a replay costs, against libcachesim's LRU on the same block accesses.

The accesses are those of the Mooncake conversation trace in blocks of 16 tokens, each block known
by a random hash of 64 bits. libcachesim reads them from a memory-mapped file in its own format and
hashes them in its table; ours numbers the hashes and links the chains first, and that counts. Both
take turns in one process, by CPU time. libcachesim has the size of table that suits it best here.

As flat LRU takes every access for itself, one comparison gives ours the accesses as requests of one
block each: there both have to find exactly the same hits.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import libcachesim
import numpy as np
from evictune_policies.algorithms.pool import NONE
from evictune_policies.replay.simulation.order import OrderReplay
from evictune_policies.replay.simulation.result import Result
from evictune_policies.replay.traces.intern import numbers
from evictune_policies.replay.traces.reading import read_trace
from evictune_policies.replay.traces.trace import Trace
from numpy.typing import NDArray

from tests.perf.entry import entry

TRACE = Path(__file__).parents[1] / "data/traces/mooncake-conversation.jsonl.xz"
BLOCK_TOKENS = 16
ACCESSES = 5_000_000
CAPACITY = 160_000
CANDIDATES = 32
ROUNDS = 5
HASH_POWERS = (24, 20, 18)  # of libcachesim's table; 24 is its default
LIMITS = {"resident": 64, "seen": 24}  # bytes for each block
RECORD = np.dtype([("time", "<u4"), ("id", "<u8"), ("size", "<u4"), ("next", "<i8")])


def clock() -> float:
    """CPU seconds of this process."""
    return time.process_time()


class Stream:
    """The first requests of the trace that make enough accesses, known by their hashes alone."""

    def __init__(self, accesses: int) -> None:
        whole = read_trace(TRACE).with_block_tokens(BLOCK_TOKENS)
        enough = int(np.searchsorted(np.cumsum(whole.whole_blocks), accesses)) + 1
        self.trace = whole.sliced(slice(0, enough))
        chains = self.trace.chains()
        random = np.random.default_rng(7)
        hashes = random.integers(0, 2**64, self.trace.distinct, dtype=np.uint64)
        self.ids: NDArray[np.uint64] = hashes[chains.contents]
        lengths = np.diff(chains.starts)
        self.trace = replace(
            self.trace,
            starts=chains.starts,
            contents=chains.contents,
            known_tokens=lengths * BLOCK_TOKENS,
        )
        self._begins = chains.starts[:-1][lengths > 0]
        self._index = np.arange(len(self.ids), dtype=np.int32)
        self._index -= np.repeat(chains.starts[:-1], lengths).astype(np.int32)
        self._flat = singles(len(self.ids))

    @property
    def accesses(self) -> int:
        """How many there are."""
        return len(self.ids)

    def chained(self) -> OrderReplay:
        """Number the hashes, find each one's parent, and make ready: what is done once."""
        contents, distinct = numbers(self.ids)
        before = np.empty_like(contents)
        before[1:] = contents[:-1]
        before[self._begins] = NONE
        parent, depth = np.empty((2, distinct), np.int32)
        parent[contents], depth[contents] = before, self._index
        return OrderReplay(replace(self.trace, contents=contents, parent=parent, depth=depth))

    def flat(self) -> OrderReplay:
        """Every access a request of its own: a block that may be hit, and one further token."""
        contents, distinct = numbers(self.ids)
        parent, depth = np.full(distinct, NONE, np.int32), np.zeros(distinct, np.int32)
        return OrderReplay(replace(self._flat, contents=contents, parent=parent, depth=depth))


def singles(n: int) -> Trace:
    """So many requests of one block and one token; what the blocks hold is left open."""
    tokens = np.full(n, BLOCK_TOKENS, np.int64)
    nothing = np.zeros(0, np.int32)
    return Trace(
        name="flat",
        block_tokens=BLOCK_TOKENS,
        arrival=np.zeros(n),
        prompt_tokens=tokens + 1,
        output_tokens=np.ones(n, np.int64),
        starts=np.arange(n + 1),
        contents=nothing,
        known_tokens=tokens,
        parent=nothing,
        depth=nothing,
        previous=np.full(n, NONE, np.int32),
        think=np.full(n, np.nan),
        tenant=np.zeros(n, np.int32),
        final=np.zeros(n, np.bool_),
    )


class Peer:
    """libcachesim's LRU on a file of the accesses."""

    def __init__(self, ids: NDArray[np.uint64], file: Path) -> None:
        records = np.zeros(len(ids), RECORD)
        records["id"], records["size"], records["next"] = ids, 1, NONE
        records.tofile(file)
        self._file, self._accesses = str(file), len(ids)
        self._power = min(HASH_POWERS, key=lambda power: self._timed(power)[0])

    def run(self) -> tuple[float, int]:
        """CPU seconds of a pass, and its hits."""
        return self._timed(self._power)

    def _timed(self, power: int) -> tuple[float, int]:
        # Its own names: no sizes are looked at, so that a capacity is a number of objects.
        cache = libcachesim.LRU(CAPACITY, hashpower=power)
        reader = libcachesim.TraceReader(
            self._file,
            libcachesim.TraceType.ORACLE_GENERAL_TRACE,
            libcachesim.ReaderInitParam(ignore_obj_size=True),
        )
        began = clock()
        missed, _ = cache.process_trace(reader)
        return clock() - began, round(self._accesses * (1 - missed))


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds of some work, and what came of it."""
    began = clock()
    done = work()
    return clock() - began, done


def hits(result: Result) -> int:
    """Blocks found."""
    return int(result.cached_tokens.sum()) // BLOCK_TOKENS


def measure_lru(stream: Stream, peer: Peer) -> Iterator[dict[str, Any]]:
    """One pass each, hashing included, on requests and on single blocks."""

    def on_requests() -> Result:
        return stream.chained().run("prefix-lru", CAPACITY)

    single = stream.flat()

    def on_single_blocks() -> Result:
        numbers(stream.ids)  # anew, to count; that each is a request is not the stream's cost
        # One more block: the one that the further token takes while the request runs.
        return single.run("lru", CAPACITY + 1)

    for name, ours in (("LRU", on_requests), ("LRU, a block a request", on_single_blocks)):
        ours()  # compiled, or loaded
        spent: list[tuple[float, float]] = []
        for _ in range(ROUNDS):
            peer_seconds, peer_hits = peer.run()
            our_seconds, result = timed(ours)
            spent.append((peer_seconds, our_seconds))
        if ours is on_single_blocks and hits(result) != peer_hits:
            raise SystemExit(f"{name}: {hits(result):,} hits, libcachesim finds {peer_hits:,}")
        peers, times = (median(each) * 1e9 / stream.accesses for each in zip(*spent, strict=True))
        name = f"{name}, {stream.accesses:,} accesses"
        yield entry(name, "libcachesim LRU", peers, times, 1.0, "ns an access")


def measure_candidates(stream: Stream, peer: Peer) -> Iterator[dict[str, Any]]:
    """T-LRU at as many xi as there are candidates, the hashes numbered once."""
    stream.chained().run("t-lru", CAPACITY, xi_tokens=1)  # compiled, or loaded
    peers = 0.0
    ours, prepared = timed(stream.chained)
    for candidate in range(CANDIDATES):
        peers += peer.run()[0]
        xi = 512 * (candidate + 1)
        ours += timed(lambda: prepared.run("t-lru", CAPACITY, xi_tokens=xi, q_hat_tokens=200))[0]  # noqa: B023
    yield entry(
        f"{CANDIDATES} T-LRU candidates", f"{CANDIDATES} passes of libcachesim LRU",
        peers, ours, 0.5, "s",
    )  # fmt: skip


def peak_bytes(trace: Trace, capacity: int) -> int:
    """The most memory that a T-LRU replay has at any time."""
    prepared = OrderReplay(trace)
    tracemalloc.start()
    prepared.run("t-lru", capacity, xi_tokens=8192)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def measure_memory(trace: Trace) -> Iterator[dict[str, Any]]:
    """Bytes for each further block of the pool, and for each further content ever seen."""
    more = 1 << 20
    parent = np.concatenate([trace.parent, np.full(more, NONE, np.int32)])
    depth = np.concatenate([trace.depth, np.zeros(more, np.int32)])
    wider = replace(trace, parent=parent, depth=depth)
    least = peak_bytes(trace, CAPACITY)
    resident = (peak_bytes(trace, CAPACITY + more) - least) / more
    seen = (peak_bytes(wider, CAPACITY) - least) / more
    seen += trace.parent.itemsize + trace.depth.itemsize  # they are the trace's
    for name, value in (("resident", resident), ("seen", seen)):
        yield entry(
            f"memory, T-LRU, a block {name}", "stated limit", LIMITS[name], value, 1.0, "bytes"
        )


START = """
import time
began = time.process_time()
from evictune_policies.replay.simulation.order import OrderReplay
from tests.perf.bench_replay import tiny
OrderReplay(tiny()).run("t-lru", 10, xi_tokens=8192)
print(time.process_time() - began)
"""


def tiny() -> Trace:
    """One request of one block."""
    one, none = np.zeros(1, np.int32), np.full(1, NONE, np.int32)
    tokens = np.full(1, BLOCK_TOKENS, np.int64)
    return Trace(
        name="tiny", block_tokens=BLOCK_TOKENS, arrival=np.zeros(1), prompt_tokens=tokens,
        output_tokens=tokens, starts=np.array([0, 1]), contents=one, known_tokens=tokens,
        parent=none, depth=one, previous=none, think=np.full(1, np.nan), tenant=one,
        final=np.zeros(1, np.bool_),
    )  # fmt: skip


def measure_start(directory: Path) -> Iterator[dict[str, Any]]:
    """A process that has to compile a policy, and one that finds it compiled."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(directory)}
    environment.pop("NUMBA_CACHE_DIR", None)  # this process has set it
    environment["PYTHONPATH"] = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
    compiling, kept = (
        float(subprocess.check_output([sys.executable, "-c", START], env=environment))
        for _ in range(2)
    )
    yield entry("start, compiled before", "compiling first", compiling, kept, 0.6, "s")


def results() -> Iterator[dict[str, Any]]:
    """Every record."""
    with tempfile.TemporaryDirectory() as directory:
        stream = Stream(ACCESSES)
        peer = Peer(stream.ids, Path(directory) / "accesses.oracleGeneral")
        yield from measure_lru(stream, peer)
        yield from measure_candidates(stream, peer)
        yield from measure_memory(stream.trace)
        yield from measure_start(Path(directory) / "cache")
