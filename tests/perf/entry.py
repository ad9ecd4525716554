"""What a benchmark says, as `build/bench.json` keeps it."""

from __future__ import annotations

from typing import Any


def entry(
    name: str, peer: str, peer_value: float, our_value: float, bound: float | None, unit: str
) -> dict[str, Any]:
    """One record. bound: the largest ratio allowed; None of a goal in absolute units."""
    return {
        "name": name,
        "peer": peer,
        "peer_value": round(peer_value, 3),
        "our_value": round(our_value, 3),
        "ratio": round(our_value / peer_value, 4),
        "bound": bound,
        "unit": unit,
    }
