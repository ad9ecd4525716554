"""Length-aware T-LRU: T-LRU that is told the length of each conversation's next prompt.

From https://arxiv.org/abs/2510.15152, appendix G.1: knows whether a conversation continues and the
exact length of its next prompt, which takes the place of H + q_hat. Everything else, and every
choice, is as in `end_aware_t_lru`: a yardstick as well.

Where several requests continue the same one, the longest counts. A conversation of which the trace
shows no next turn although it has one is kept whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from evictune_policies.algorithms.end_aware_t_lru import ForetoldTLRU, new_foretold_t_lru
from evictune_policies.algorithms.pool import NONE
from evictune_policies.algorithms.turns import last_turns, next_prompts, turns_before

if TYPE_CHECKING:
    from evictune_policies.algorithms.catalog import Setting


def new_length_aware_t_lru(setting: Setting) -> ForetoldTLRU:
    """The policy's state before the first request."""
    chains = setting.chains
    before = turns_before(chains)
    prompts = next_prompts(chains, before)
    whole = chains.tokens + setting.xi_tokens
    return new_foretold_t_lru(
        setting, last_turns(chains, before), np.where(prompts == NONE, whole, prompts)
    )
