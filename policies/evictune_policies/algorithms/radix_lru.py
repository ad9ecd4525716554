"""SGLang's radix-tree LRU: the least recently used leaf of the tree of prefixes goes, all of it.

RadixAttention (https://arxiv.org/abs/2312.07104, section 3; sglang/srt/mem_cache/radix_cache.py:
`RadixCache.evict` with `LRUStrategy`). Contents form a tree whose nodes are runs of tokens. What
nobody uses and nothing hangs on is a leaf; the leaf that was used least recently is dropped whole,
however little room was wanted, and its parent may be a leaf then.

Here a node is a run of blocks; what is left open, and chosen:

- Nodes end where SGLang's do when prompts are not computed in chunks: where a prompt ends, where a
  request ends, and where a later request leaves the run. An end, once made, stays.
- The last use is when the last request let go of the block. All blocks of a node have the same, and
  a request frees its last block first, so the first leaf in the order of freeing is the oldest.
- The rest of a dropped node fills what the same request still needs; what it does not need is blank
  when the next request starts, and cannot be hit.
- A tree holds a content once. SGLang frees a copy when the prompt is computed, here it is dropped
  when its request ends; its use was one of the block that is in the tree.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evictune_policies.algorithms.lists import Lists, append, first, new_lists, unlink
from evictune_policies.algorithms.operations import IMPLEMENTATIONS, Operations, Visit
from evictune_policies.algorithms.pool import NONE, Pool

USED, DROPPED = 0, 1


class RadixLRU(NamedTuple):
    """lists: of the blocks that nobody holds: USED, least recently first, and DROPPED.

    dropped: per block: whether it is to be blank, or about to be filled anew.
    ends: per block: whether a node ends with it.
    filled_by: per block: the request that filled it.
    prompt_blocks: per request: whole blocks of its prompt.
    ending: [the step of the release whose first block was seen last].
    """

    lists: Lists
    dropped: NDArray[np.bool_]
    ends: NDArray[np.bool_]
    filled_by: NDArray[np.int64]
    prompt_blocks: NDArray[np.int64]
    ending: NDArray[np.int64]


def new_radix_lru(capacity_blocks: int, prompt_blocks: NDArray[np.int64]) -> RadixLRU:
    """The policy's state before the first request. prompt_blocks: per request."""
    return RadixLRU(
        lists=new_lists(capacity_blocks, 2),
        dropped=np.zeros(capacity_blocks, np.bool_),
        ends=np.zeros(capacity_blocks, np.bool_),
        filled_by=np.full(capacity_blocks, NONE, np.int64),
        prompt_blocks=prompt_blocks,
        ending=np.full(1, NONE, np.int64),
    )


def start(state: RadixLRU, pool: Pool, block: int, visit: Visit) -> None:
    """A node begins here unless the request filled the block before it, too."""
    content = pool.content[block]
    state.dropped[block] = False
    state.filled_by[block] = visit.request
    state.ends[block] = pool.depth[content] + 1 == state.prompt_blocks[visit.request]
    parent = pool.parent[content]
    if parent != NONE:
        before = pool.resident[parent]
        if before != NONE and state.filled_by[before] != visit.request:
            state.ends[before] = True


def hit(state: RadixLRU, pool: Pool, block: int, visit: Visit) -> None:
    """A block that is held again is no candidate."""
    if pool.references[block] == 0:
        unlink(state.lists, block)
        state.dropped[block] = False
    if pool.depth[pool.content[block]] + 1 == state.prompt_blocks[visit.request]:
        state.ends[block] = True


def leave(state: RadixLRU, pool: Pool, block: int, visit: Visit) -> None:
    """The first block that a request lets go of is its last: a node ends there."""
    if state.ending[0] != visit.step:
        state.ending[0] = visit.step
        state.ends[block] = True


def free(state: RadixLRU, pool: Pool, block: int, visit: Visit) -> None:
    """The block is the most recently used; if it is a copy, the one in the tree is."""
    leave(state, pool, block, visit)
    anchor = len(pool.content)
    original = pool.resident[pool.content[block]]
    if original == block or state.dropped[original]:
        append(state.lists, anchor + USED, block)
        return
    drop(state, pool, block)
    if pool.references[original] == 0:
        unlink(state.lists, original)
        append(state.lists, anchor + USED, original)


def drop(state: RadixLRU, pool: Pool, block: int) -> None:
    """The block will not be hit any more."""
    unlink(state.lists, block)
    append(state.lists, len(pool.content) + DROPPED, block)
    state.dropped[block] = True


def victim(state: RadixLRU, pool: Pool) -> int:
    """What is left of a dropped node; or else drop the oldest leaf."""
    anchor = len(pool.content)
    if first(state.lists, anchor + DROPPED) == NONE:
        drop_node(state, pool, first(state.lists, anchor + USED))
    return expired(state, pool, 0.0)


def drop_node(state: RadixLRU, pool: Pool, block: int) -> None:
    """Drop a leaf, given its last block."""
    drop(state, pool, block)
    while pool.parent[pool.content[block]] != NONE:
        block = pool.resident[pool.parent[pool.content[block]]]
        if block == NONE or state.ends[block] or state.dropped[block] or pool.references[block] > 0:
            return
        drop(state, pool, block)


def expired(state: RadixLRU, pool: Pool, now: float) -> int:
    """The next block of a dropped node."""
    block = first(state.lists, len(pool.content) + DROPPED)
    if block != NONE:
        unlink(state.lists, block)
    return block


IMPLEMENTATIONS[RadixLRU] = Operations(start, hit, free, victim, expired, leave)
