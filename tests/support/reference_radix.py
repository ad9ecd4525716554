"""SGLang's radix tree over blocks, with real nodes that are split, for one request at a time.

No request may find its whole prompt: what it computes again would be a copy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tests.support.reference_cache import Request


@dataclass(eq=False)
class Node:
    """A run of blocks below another node. used: when a request last went through it."""

    labels: list[int]
    above: Node | None
    used: int = 0
    below: dict[int, Node] = field(default_factory=dict)


class RadixTree:
    """A pool of blocks, all content of which is in one tree.

    Attributes:
        hits: Blocks found, by request.
    """

    def __init__(self, requests: Sequence[Request], capacity_blocks: int, block_tokens: int):
        self.requests = requests
        self.capacity_blocks = capacity_blocks
        self.block_tokens = block_tokens
        self.root = Node([], None)
        self.now = 0
        self.hits: dict[int, int] = {}

    def run(self) -> None:
        """All requests, one after the other."""
        for number, request in enumerate(self.requests):
            self.now += 1
            labels = list(request.blocks)
            whole = request.prompt_tokens // self.block_tokens
            path = self._match(labels[: (request.prompt_tokens - 1) // self.block_tokens])
            found = sum(len(node.labels) for node in path)
            self.hits[number] = found
            self._make_room(whole - found, path)
            self._insert(labels[:whole])
            self._make_room(len(labels) - whole, self._match(labels[:whole]))
            self._insert(labels)

    def _match(self, labels: list[int]) -> list[Node]:
        """The nodes of the longest prefix there is; the last is split if it goes on."""
        path: list[Node] = []
        node = self.root
        while labels and labels[0] in node.below:
            node = node.below[labels[0]]
            same = 0
            while same < min(len(labels), len(node.labels)) and labels[same] == node.labels[same]:
                same += 1
            if same < len(node.labels):
                node = self._split(node, same)
            node.used = self.now
            path.append(node)
            labels = labels[same:]
        return path

    def _split(self, node: Node, size: int) -> Node:
        assert node.above is not None
        front = Node(node.labels[:size], node.above, node.used)
        node.above.below[front.labels[0]] = front
        node.labels, node.above = node.labels[size:], front
        front.below[node.labels[0]] = node
        return front

    def _insert(self, labels: list[int]) -> None:
        path = self._match(labels)
        rest = labels[sum(len(node.labels) for node in path) :]
        if rest:
            above = path[-1] if path else self.root
            above.below[rest[0]] = Node(rest, above, self.now)

    def _nodes(self, node: Node) -> Iterator[Node]:
        for below in node.below.values():
            yield below
            yield from self._nodes(below)

    def _make_room(self, blocks: int, locked: list[Node]) -> None:
        """Drop the least recently used leaves, whole, until so many blocks are free."""
        while sum(len(n.labels) for n in self._nodes(self.root)) + blocks > self.capacity_blocks:
            leaves = [n for n in self._nodes(self.root) if not n.below and n not in locked]
            oldest = min(leaves, key=lambda leaf: leaf.used)
            assert oldest.above is not None
            del oldest.above.below[oldest.labels[0]]
