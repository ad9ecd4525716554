"""Belady's rule for the tail: the least tail excess latency (TEL) at one xi.

TEL is the sum over requests of max(0, uncached tokens - xi): arXiv 2510.15152, section 2, theorem 1
("Tail-Optimized Belady"), for caches that have to take in each request whole: appendix D.

It is Belady's rule where only some hits count (`future.hits_that_count`): those on blocks that
start before the prompt's length - xi. What lies behind may be computed anew without loss. A block
whose next request does not count on it is worth nothing until then, and then that request brings it
back anyway; such blocks go before all others, and those that never come again before them. The
paper caps what a conversation may keep; here, where conversations share blocks, the cap belongs to
the next request of each block.

It is optimal, one request at a time, by the argument of `belady`, where lengths are block-aligned:
where a block saves either a whole block of excess or none, so where the prompt's length - xi is a
multiple of the block, or at xi 0. Else one block a request saves less than the others, and which of
unequal savings to keep is no longer settled by who comes last. Such a block counts here in full;
the sum is then within one block a request of a true bound.

It bounds TEL at its xi. It bounds no quantile, and not the number of requests above xi.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from evictune_policies.algorithms.belady import Belady, new_belady

if TYPE_CHECKING:
    from evictune_policies.algorithms.catalog import Setting


def new_tail_belady(setting: Setting) -> Belady:
    """The policy's state before the first request, for the xi of the setting."""
    return new_belady(setting, setting.xi_tokens)
