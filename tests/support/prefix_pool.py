"""A prefix cache in a few lines, by the definition of T-LRU alone: nothing of vLLM or the plugin.

Blocks are evicted TEL-safe first, then the others, each in LRU order, a request's suffix first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence


class PrefixPool:
    """A pool of `blocks` blocks of `block_tokens` tokens. xi None is stock LRU."""

    def __init__(
        self, blocks: int, block_tokens: int, q_hat: int = 0, xi: int | None = None
    ) -> None:
        self.xi = xi
        self._block = block_tokens
        self._q_hat = q_hat
        self._unused = blocks - 1  # vLLM keeps the null block for itself
        self._tel_safe: OrderedDict[int, int] = OrderedDict()
        self._others: OrderedDict[int, int] = OrderedDict()

    def serve(self, prompt: Sequence[int], output_tokens: int) -> int:
        """Serve one request from start to end; its uncached prompt tokens."""
        chain = self._chain(prompt)
        # At least the last token is computed, hit or not.
        hits = self._take_hits(chain[: (len(prompt) - 1) // self._block])
        length = len(prompt) + output_tokens
        total = -(-length // self._block)
        for _ in range(total - len(hits)):
            self._take_free()
        self._release(chain, hits, length, total)
        return len(prompt) - len(hits) * self._block

    def _chain(self, prompt: Sequence[int]) -> list[int]:
        """A hash for each full block, of all tokens up to its end."""
        chain, parent = [], 0
        for end in range(self._block, len(prompt) + 1, self._block):
            parent = hash((parent, tuple(prompt[end - self._block : end])))
            chain.append(parent)
        return chain

    def _take_hits(self, chain: Sequence[int]) -> list[int]:
        """The longest length seen of each block of the cached prefix."""
        longest = []
        for key in chain:
            region = next((r for r in (self._tel_safe, self._others) if key in r), None)
            if region is None:
                break
            longest.append(region.pop(key))
        return longest

    def _take_free(self) -> None:
        if self._unused:
            self._unused -= 1
        else:
            (self._tel_safe or self._others).popitem(last=False)

    def _release(self, chain: Sequence[int], hits: list[int], length: int, total: int) -> None:
        lengths = [max(length, seen) for seen in hits] + [length] * (len(chain) - len(hits))
        self._unused += total - len(chain)
        for number in reversed(range(len(chain))):
            key = chain[number]
            for region in (self._tel_safe, self._others):
                # An exact repeat computes its last block again and leaves a duplicate.
                self._unused += region.pop(key, None) is not None
            safe = self.xi is not None and (
                number * self._block >= max(0, lengths[number] + self._q_hat - self.xi)
            )
            (self._tel_safe if safe else self._others)[key] = lengths[number]
