"""The KV blocks, what is cached in them, and the chains that the cached contents form.

Plain functions over NumPy arrays: they run as they stand, and the replay compiles the very same
functions. A *content* is what a block can hold: the tokens of one block together with all tokens
before them (vLLM's chained block hash). Contents are numbered 0..contents-1, each with its parent,
the content of the block before it. A *block* is a place in the pool, 0..capacity-1.

As in vLLM, several blocks may hold the same content (a *copy* is computed when a hit may not be
used); the first that was filled is the one that is found. What else makes vLLM's pool, who holds
what and in which order blocks are freed, is the caller's.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Int32 = NDArray[np.int32]

NONE = -1


class Pool(NamedTuple):
    """Blocks and contents.

    content: per block: the content it holds; NONE: nothing that could be hit.
    references: per block: how many running requests hold it.
    next_copy: per block: the next block with the same content, in order of filling.
    resident: per content: the first block that holds it; NONE: it is not in the pool.
    children: per content: how many contents in the pool have it as their parent.
    parent: per content: the content before it; NONE for the first of a chain.
    depth: per content: its index in the chain, from 0.
    """

    content: Int32
    references: Int32
    next_copy: Int32
    resident: Int32
    children: Int32
    parent: Int32
    depth: Int32


def new_pool(capacity_blocks: int, parent: Int32, depth: Int32) -> Pool:
    """An empty pool for contents with these parents and depths."""
    contents = len(parent)
    return Pool(
        content=np.full(capacity_blocks, NONE, np.int32),
        references=np.zeros(capacity_blocks, np.int32),
        next_copy=np.full(capacity_blocks, NONE, np.int32),
        resident=np.full(contents, NONE, np.int32),
        children=np.zeros(contents, np.int32),
        parent=parent,
        depth=depth,
    )


def fill(pool: Pool, block: int, content: int) -> None:
    """A block without content gets some: from now on it can be hit."""
    pool.content[block] = content
    pool.next_copy[block] = NONE
    first = pool.resident[content]
    if first == NONE:
        pool.resident[content] = block
        parent = pool.parent[content]
        if parent != NONE:
            pool.children[parent] += 1
        return
    while pool.next_copy[first] != NONE:
        first = pool.next_copy[first]
    pool.next_copy[first] = block


def clear(pool: Pool, block: int) -> int:
    """A block loses its content, which is returned: it was evicted."""
    content = pool.content[block]
    following = pool.next_copy[block]
    pool.content[block] = NONE
    pool.next_copy[block] = NONE
    first = pool.resident[content]
    if first != block:
        while pool.next_copy[first] != block:
            first = pool.next_copy[first]
        pool.next_copy[first] = following
        return int(content)
    pool.resident[content] = following
    if following == NONE:
        parent = pool.parent[content]
        if parent != NONE:
            pool.children[parent] -= 1
    return int(content)


def is_leaf(pool: Pool, block: int) -> bool:
    """Whether nothing in the pool would be stranded if this block lost its content."""
    content = pool.content[block]
    if pool.children[content] == 0:
        return True
    return bool(pool.resident[content] != block or pool.next_copy[block] != NONE)
