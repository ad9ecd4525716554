"""What vLLM's KVCacheManager does for its scheduler: look up, allocate, cache, free.

Plain functions over `engine.Engine`. (vLLM 0.32, v1/core/kv_cache_manager.py,
single_type_kv_cache_manager.py and block_pool.py, for one group of full attention.)
"""

from __future__ import annotations

from evictune_policies.algorithms.operations import Visit, free, hit, leave, start
from evictune_policies.algorithms.pool import NONE, fill
from evictune_policies.replay.mechanics import age_bin, longest_prefix, put_blank, take
from evictune_policies.replay.simulation.engine import FREE, RUNNING, UNUSED, VISITS, Engine


def tokens_of(engine: Engine, request: int) -> int:
    """Prompt and output so far: vLLM's Request.num_tokens."""
    return int(engine.requests.prompt[request] + engine.requests.produced[request])


def visit_of(engine: Engine, request: int, now: float, finished: int) -> Visit:
    """What the policy is told at this occasion."""
    engine.counts[VISITS] += 1
    tokens = tokens_of(engine, request)
    return Visit(now, engine.counts[VISITS], request, tokens, finished)


def look_up(engine: Engine, request: int) -> int:
    """How many blocks are hits: never all tokens, since the last one's logits are needed."""
    most = (tokens_of(engine, request) - 1) // engine.limits.block_tokens
    requests = engine.requests
    return longest_prefix(engine.pool, engine.chain, requests.start[request], most)


def fits(engine: Engine, request: int, hits: int, tokens: int) -> bool:
    """Whether a waiting request can have blocks for so many tokens, its hits among them.

    A hit that nobody holds counts as a free block until it is taken. The watermark is kept free
    unless nobody runs.
    """
    requests, pool = engine.requests, engine.pool
    needed = -(-tokens // engine.limits.block_tokens) - hits
    begin = requests.start[request]
    for index in range(hits):
        if pool.references[pool.resident[engine.chain[begin + index]]] == 0:
            needed += 1
    if engine.counts[RUNNING] > 0:
        needed += engine.limits.watermark_blocks
    return bool(needed <= engine.counts[FREE])


def admit(engine: Engine, state: object, request: int, hits: int, visit: Visit) -> None:
    """A request gets a row of the table and holds its hits."""
    requests, pool, places = engine.requests, engine.pool, engine.places
    engine.counts[UNUSED] -= 1
    row = engine.rows.unused[engine.counts[UNUSED]]
    requests.row[request] = row
    begin = requests.start[request]
    for index in range(hits):
        block = pool.resident[engine.chain[begin + index]]
        if pool.references[block] == 0:
            engine.counts[FREE] -= 1
            places.hit_age[age_bin(visit.now - places.released[block])] += 1
        else:
            places.hit_age[0] += 1
        hit(state, pool, block, visit)
        pool.references[block] += 1
        engine.table[row, index] = block
    engine.rows.held[row] = hits
    engine.rows.filled[row] = hits
    requests.computed[request] = hits * engine.limits.block_tokens


def extend(engine: Engine, state: object, request: int, tokens: int, visit: Visit) -> bool:
    """Let a running request hold blocks for so many tokens in all, and cache the full ones.

    vLLM caches a block here, before its tokens are computed: requests that are admitted later in
    the same step hit it. False: there is no room, and nothing was done.
    """
    requests, pool = engine.requests, engine.pool
    row = requests.row[request]
    size = engine.limits.block_tokens
    needed = -(-tokens // size)
    held = engine.rows.held[row]
    if needed - held > engine.counts[FREE]:
        return False
    for index in range(held, needed):
        block = take(state, pool, engine.places, visit.now)
        pool.references[block] = 1
        engine.table[row, index] = block
    if needed > held:
        engine.counts[FREE] -= needed - held
        engine.rows.held[row] = needed
    for index in range(engine.rows.filled[row], tokens // size):
        content = engine.chain[requests.start[request] + index]
        engine.seen[content] = True
        block = engine.table[row, index]
        fill(pool, block, content)
        start(state, pool, block, visit)
    engine.rows.filled[row] = tokens // size
    return True


def release(engine: Engine, state: object, request: int, visit: Visit) -> None:
    """A request lets go of all its blocks: it finished, or it was preempted."""
    row = engine.requests.row[request]
    held = engine.rows.held[row]
    # vLLM takes blocks without content back in the order suffix first: the next one to be handed
    # out is the last of the request.
    for index in range(held):
        block = engine.table[row, index]
        if engine.pool.content[block] == NONE:
            engine.pool.references[block] = 0
            engine.counts[FREE] += 1
            put_blank(engine.places, block)
    for index in range(held):
        block = engine.table[row, held - 1 - index if engine.limits.suffix_first else index]
        if engine.pool.content[block] != NONE:
            _let_go(engine, state, block, visit)
    engine.requests.row[request] = NONE
    engine.rows.unused[engine.counts[UNUSED]] = row
    engine.counts[UNUSED] += 1


def _let_go(engine: Engine, state: object, block: int, visit: Visit) -> None:
    """A request lets go of a block with content."""
    pool = engine.pool
    pool.references[block] -= 1
    if pool.references[block] > 0:
        leave(state, pool, block, visit)
        return
    engine.counts[FREE] += 1
    engine.places.released[block] = visit.now
    free(state, pool, block, visit)
