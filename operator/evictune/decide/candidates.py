"""Which xi to try next.

T-LRU is stock LRU at xi 0, at infinity, and wherever more is protected than fits; in between, the
tail grows with xi. So the best xi is the smallest that fits, and the search brackets it: values
known to be too small from below (their protected blocks were evicted), values known to fit and
still above the target from above. Feedforward says where to begin.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evictune.api.decision import Quarantined
from evictune.api.policy import TokenRange
from evictune.api.reasons import Reason

RATIO = math.sqrt(2)
# So many values that fit and gained nothing, each half of the one before, end the search downwards.
FRUITLESS = 3


@dataclass(frozen=True)
class Search:
    """All that the choice rests on. Tokens; seconds; xi None is stock LRU.

    reach: tokens that can be prefilled within the target, None if unknown. worthwhile: an xi
    above it would not better what is measured now. tried: values left under like traffic. proven:
    the present value helped when it was set, as far as is known.
    """

    grid: Sequence[int]
    current: int | None
    overflowing: bool
    reach: float | None
    worthwhile: float
    estimate: float
    tolerance: float
    tried: Mapping[int | None, Quarantined]
    proven: bool = True


@dataclass(frozen=True)
class Choice:
    """The xi to set; `exhausted`: nothing is left to try, and this is the best there was."""

    xi: int | None
    basis: str
    exhausted: bool = False


def grid(bounds: TokenRange, block_tokens: int) -> tuple[int, ...]:
    """Candidates: whole blocks, each about RATIO times the one before, within the bounds."""
    low = math.ceil(max(bounds.minimum, 1) / block_tokens) * block_tokens
    high = bounds.maximum // block_tokens * block_tokens
    if low > high:
        return (bounds.maximum,)
    steps = math.ceil(math.log(high / block_tokens, RATIO)) + 1
    values = {round(RATIO**step) * block_tokens for step in range(steps + 1)}
    return tuple(sorted({low, high} | {value for value in values if low <= value <= high}))


def choose(search: Search) -> Choice | None:
    """The next xi; the present one if it is the best to be had; None if it cannot be told yet."""
    floor, ceiling = _bracket(search)
    options = [
        xi
        for xi in search.grid
        if floor < xi < ceiling and xi not in search.tried and xi != search.current
    ]
    if floor == 0 and ceiling == math.inf:
        return _begin(search, options)
    if ceiling == math.inf:
        return _larger(search, floor, options)
    if floor == 0:
        return _smaller(search, ceiling, options)
    if options:
        basis = f"xi {floor:g} protects more than fits, xi {ceiling:g} lets too much go"
        return Choice(_middle(options), basis)
    return _best(search)


def start(grid_values: Sequence[int], reach: float) -> int:
    """Where to begin: one step below what can be prefilled within the target.

    TTFT holds more than prefill, xi is rounded to whole blocks, and the result must clear the
    threshold by the tolerance.
    """
    below = [xi for xi in grid_values if xi * RATIO <= reach * 1.01]
    return below[-1] if below else grid_values[0]


def _bracket(search: Search) -> tuple[float, float]:
    """(largest xi known to be too small, smallest known to fit): what is seen now beats memory."""
    known = {
        xi: record.too_small
        for xi, record in search.tried.items()
        if xi is not None and record.reason is not Reason.ABANDONED
    }
    current = search.current
    if current is not None and search.overflowing:
        known = {xi: small for xi, small in known.items() if small or xi > current}
    elif current is not None:
        known = {xi: small for xi, small in known.items() if not small or xi < current}
    if current is not None:
        known[current] = search.overflowing
    floor = max((xi for xi, small in known.items() if small), default=0)
    fitting = (xi for xi, small in known.items() if not small and xi > floor)
    return floor, min(fitting, default=math.inf)


def _begin(search: Search, options: list[int]) -> Choice | None:
    if search.reach is None or not options:
        return None
    basis = f"{search.reach:.0f} tokens can be prefilled within the target"
    return Choice(start(options, search.reach), basis)


def _larger(search: Search, floor: float, options: list[int]) -> Choice:
    """Too small, and nothing known to fit."""
    options = [xi for xi in options if xi <= search.worthwhile]
    if not options:
        return _best(search)
    basis = f"xi {floor:g} protects more than fits: protected blocks are evicted"
    within = [xi for xi in options if search.reach is not None and xi <= search.reach]
    return Choice(_middle(within or options), basis)


def _smaller(search: Search, ceiling: float, options: list[int]) -> Choice:
    """What is protected fits, and the tail is still too long."""
    gained_nothing = ceiling != search.current
    if gained_nothing and options and search.current is None:
        return _halved(search, ceiling, options)
    if gained_nothing or not options:
        return _best(search)
    basis = f"what xi {ceiling:g} protects fits, and it still lets too much go"
    within = [xi for xi in options if search.reach is None or xi * RATIO <= search.reach * 1.01]
    return Choice(within[-1] if within else options[0], basis)


def _halved(search: Search, ceiling: float, options: list[int]) -> Choice:
    """The ceiling gained nothing: it may have protected nothing yet, which half of it does."""
    fruitless = [
        xi
        for xi, record in search.tried.items()
        if xi is not None and not record.too_small and record.reason is not Reason.ABANDONED
    ]
    if len(fruitless) >= FRUITLESS:
        return _best(search)
    half = [xi for xi in options if xi <= ceiling / 2]
    basis = f"xi {ceiling:g} protects too little to make a difference"
    return Choice(half[-1] if half else options[0], basis)


def _best(search: Search) -> Choice:
    """Nothing is left to try: the best that was measured, if it betters what is in force.

    Stock LRU, if what is in force came without a gain.
    """
    measured = {
        xi: record.ttft
        for xi, record in search.tried.items()
        if record.ttft is not None and (xi is None or xi in search.grid)
    }
    measured.pop(search.current, None)
    best = min(measured, key=lambda xi: (measured[xi], xi or 0), default=search.current)
    stock = measured.get(None, math.inf)
    if best != search.current and measured[best] < search.estimate * (1 - search.tolerance):
        chosen = best
    elif not search.proven and stock <= search.estimate * (1 + search.tolerance):
        chosen = None
    else:
        chosen = search.current
    return Choice(chosen, "no untried value within bounds is left", exhausted=True)


def _middle(options: list[int]) -> int:
    """Of two, the larger: it is likelier to fit."""
    return options[len(options) // 2]
