"""The addresses of one cluster: a private block that nothing else on this machine uses.

A block is a /20 and holds the service addresses (its first /24), the links between this machine
and the nodes (second /24, a /30 each) and the pods of each node (a /24 each). They exist on this
machine only; with no `Node` none of them is ever configured.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from localcluster.ledger import Ledger, ledgers

POOLS = (IPv4Network("10.0.0.0/8"), IPv4Network("172.16.0.0/12"), IPv4Network("192.168.0.0/16"))
MAX_NODES = 14
ROUTES = Path("/proc/net/route")


@dataclass(frozen=True)
class NodeNetwork:
    """The addresses of one node: this machine's end of its link, its own end, its pods."""

    host: IPv4Address
    node: IPv4Address
    link: IPv4Network
    pods: IPv4Network


@dataclass(frozen=True)
class ClusterNetwork:
    """The addresses of one cluster."""

    block: IPv4Network

    @property
    def services(self) -> IPv4Network:
        """From where the API server gives Services their cluster IP."""
        return next(self.block.subnets(new_prefix=24))

    @property
    def api_service(self) -> IPv4Address:
        """The cluster IP of the Service `kubernetes`, the first one; it listens on port 443."""
        return self.services[1]

    def node(self, index: int) -> NodeNetwork:
        """The addresses of node number `index`, from 0."""
        if index >= MAX_NODES:
            raise ValueError(f"a cluster has at most {MAX_NODES} nodes, this is number {index + 1}")
        parts = list(self.block.subnets(new_prefix=24))
        link = list(parts[1].subnets(new_prefix=30))[index]
        return NodeNetwork(host=link[1], node=link[2], link=link, pods=parts[2 + index])


def reserve(ledger: Ledger) -> ClusterNetwork:
    """Take a block that overlaps no route of this machine and no other cluster."""
    taken = [*_routes(), *(IPv4Network(name) for name in _noted())]
    for pool in POOLS:
        blocks = list(pool.subnets(new_prefix=20))
        random.shuffle(blocks)
        for block in blocks:
            if not any(block.overlaps(other) for other in taken):
                ledger.note("network", str(block))
                return ClusterNetwork(block)
    raise OSError("every private address block (RFC 1918) has a route on this machine")


def _noted() -> list[str]:
    return [name for _, notes in ledgers() for kind, name in notes if kind == "network"]


def _routes() -> list[IPv4Network]:
    """The destinations of the IPv4 routes, without the default route."""
    found = []
    for line in ROUTES.read_text().splitlines()[1:]:
        fields = line.split()
        destination, mask = (_address(fields[index]) for index in (1, 7))
        if int(mask):
            found.append(IPv4Network(f"{destination}/{mask}"))
    return found


def _address(hexadecimal: str) -> IPv4Address:
    """An address as /proc/net/route writes it: the bytes in reverse."""
    return IPv4Address(bytes.fromhex(hexadecimal)[::-1])
