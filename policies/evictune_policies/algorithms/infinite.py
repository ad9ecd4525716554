"""A cache without bounds: nothing is lost that could be hit again. The floor.

No eviction policy finds more in any request, so it bounds each request's uncached tokens from
below, and its TTFT too where requests do not queue.

It is Belady's rule in a pool with room for everything: what it evicts are copies of a content, of
which one stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evictune_policies.algorithms.catalog import Setting


def room_for_everything(setting: Setting) -> int:
    """Blocks for every content there is, and beside them for the longest request.

    That request may fill copies, and may need blocks that get no content.
    """
    chains = setting.chains
    longest = -(-int(chains.tokens.max(initial=0)) // setting.block_tokens)
    return len(chains.parent) + longest
