"""Requests that have not been admitted: those to come, and the queue of those that wait.

Plain functions over `engine.Engine`. The queue is vLLM's: first come, first served, but whoever
was preempted goes before all others.
"""

from __future__ import annotations

from evictune_policies.algorithms.pool import NONE
from evictune_policies.replay.simulation.engine import FIRST_WAITING, LAST_WAITING, PENDING, Engine


def queue_behind(engine: Engine, request: int) -> None:
    """Join the queue at its end."""
    counts, behind = engine.counts, engine.requests.behind
    if counts[LAST_WAITING] == NONE:
        counts[FIRST_WAITING] = request
    else:
        behind[counts[LAST_WAITING]] = request
    counts[LAST_WAITING] = request
    behind[request] = NONE


def queue_first(engine: Engine, request: int) -> None:
    """Join the queue at its head."""
    counts = engine.counts
    engine.requests.behind[request] = counts[FIRST_WAITING]
    counts[FIRST_WAITING] = request
    if counts[LAST_WAITING] == NONE:
        counts[LAST_WAITING] = request


def leave_queue(engine: Engine) -> None:
    """The head of the queue is admitted."""
    counts = engine.counts
    counts[FIRST_WAITING] = engine.requests.behind[counts[FIRST_WAITING]]
    if counts[FIRST_WAITING] == NONE:
        counts[LAST_WAITING] = NONE


def arrive(engine: Engine, now: float) -> None:
    """Whoever has arrived by now joins the queue."""
    while engine.counts[PENDING] > 0 and engine.requests.arrival[engine.requests.pending[0]] <= now:
        queue_behind(engine, _pop(engine))


def turn_ended(engine: Engine, request: int, now: float) -> None:
    """The turns that follow upon this one will arrive after their think times."""
    requests = engine.requests
    following = requests.follower[request]
    while following != NONE:
        requests.arrival[following] = now + requests.think[following]
        _push(engine, following)
        following = requests.sibling[following]


def _before(engine: Engine, one: int, other: int) -> bool:
    """Whether a request arrives before another; at the same time, the one with less number."""
    arrival = engine.requests.arrival
    return bool(arrival[one] < arrival[other] or (arrival[one] == arrival[other] and one < other))


def _push(engine: Engine, request: int) -> None:
    heap = engine.requests.pending
    place = engine.counts[PENDING]
    engine.counts[PENDING] += 1
    while place > 0 and _before(engine, request, heap[(place - 1) // 2]):
        heap[place] = heap[(place - 1) // 2]
        place = (place - 1) // 2
    heap[place] = request


def _pop(engine: Engine) -> int:
    heap = engine.requests.pending
    first = heap[0]
    engine.counts[PENDING] -= 1
    size = engine.counts[PENDING]
    moved = heap[size]
    place, child = 0, 1
    while child < size:
        if child + 1 < size and _before(engine, heap[child + 1], heap[child]):
            child += 1
        if not _before(engine, heap[child], moved):
            break
        heap[place] = heap[child]
        place, child = child, 2 * child + 1
    heap[place] = moved
    return int(first)
