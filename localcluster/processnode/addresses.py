"""Loopback addresses for pods: every pod gets its own, so that each may use the same ports.

Linux answers on all of 127.0.0.0/8. An address is reserved by binding an abstract Unix socket
named after it: the kernel frees it when the node's process ends, however it ends, and other
nodes on the machine (in the same network namespace) see it.
"""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Iterable

from localcluster.processnode.errors import AddressesExhaustedError

_ATTEMPTS = 256


class AddressPool:
    """Hands out addresses 127.A.B.C (A, C from 32 and 1 on: low ones have other users)."""

    def __init__(self, randomness: random.Random | None = None) -> None:
        self._random = randomness or random.Random()
        self._lock = threading.Lock()
        self._held: dict[str, socket.socket] = {}

    def acquire(self, ports: Iterable[int]) -> str:
        """Reserve an address on which these TCP ports are free; AddressesExhaustedError if none."""
        wanted = sorted(set(ports))
        with self._lock:
            for _ in range(_ATTEMPTS):
                address = self._candidate()
                reservation = _reserve(address)
                if reservation is None:
                    continue
                if all(_is_free(address, port) for port in [0, *wanted]):
                    self._held[address] = reservation
                    return address
                reservation.close()
        raise AddressesExhaustedError(
            f"no address in 127.0.0.0/8 has the TCP ports {wanted} free: "
            "stop the program that listens on them at 0.0.0.0, or choose other ports"
        )

    def release(self, address: str) -> None:
        with self._lock:
            self._held.pop(address).close()

    def _candidate(self) -> str:
        pick = self._random.randint
        return f"127.{pick(32, 254)}.{pick(0, 255)}.{pick(1, 254)}"


def _reserve(address: str) -> socket.socket | None:
    reservation = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        reservation.bind(f"\0evictune-process-node/{address}")
    except OSError:  # another node holds it
        reservation.close()
        return None
    return reservation


def _is_free(address: str, port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As most servers do: a port in TIME_WAIT is free, one that is listened on is not.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True
