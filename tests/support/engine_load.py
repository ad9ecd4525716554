"""What serving is like under some eviction order, for engines that are played."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Load:
    """What serving is like under some values; rates per second. ttft: (seconds, requests)."""

    ttft: tuple[tuple[float, float], ...]
    computed: float
    queried: float = 6000.0
    evicted: tuple[tuple[str, float], ...] = (("lru", 50.0),)
    preemptions: float = 0.0
    kv_usage: float = 0.3
    running: float = 2.0
    waiting: float = 0.0

    @property
    def requests(self) -> float:
        """First tokens a second."""
        return sum(rate for _, rate in self.ttft)


SLOW = Load(ttft=((0.08, 36.0), (1.4, 4.0)), computed=3000.0)
FAST = Load(ttft=((0.08, 40.0),), computed=600.0, evicted=(("tel-safe", 50.0),))
