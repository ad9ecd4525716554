"""Requests that have not been admitted: those to come, and the queue of those that wait.

Plain functions over `engine.Engine`. The queue is vLLM's: first come, first served, but whoever
was preempted goes before all others.
"""

from __future__ import annotations

from evictune_policies.algorithms.pool import NONE
from evictune_policies.replay.engine import PENDING, Engine


def queue_behind(engine: Engine, request: int) -> None:
    """Join the queue at its end."""
    waiting = engine.waiting
    head = len(waiting) - 2
    last = waiting[head + 1]
    waiting[head if last == NONE else last] = request
    waiting[head + 1] = request
    waiting[request] = NONE


def queue_first(engine: Engine, request: int) -> None:
    """Join the queue at its head."""
    waiting = engine.waiting
    head = len(waiting) - 2
    waiting[request] = waiting[head]
    waiting[head] = request
    if waiting[head + 1] == NONE:
        waiting[head + 1] = request


def first_waiting(engine: Engine) -> int:
    """The head of the queue; NONE: it is empty."""
    return int(engine.waiting[len(engine.waiting) - 2])


def leave_queue(engine: Engine) -> None:
    """The head of the queue is admitted."""
    waiting = engine.waiting
    head = len(waiting) - 2
    request = waiting[head]
    waiting[head] = waiting[request]
    if waiting[head] == NONE:
        waiting[head + 1] = NONE


def arrive(engine: Engine, now: float) -> None:
    """Whoever has arrived by now joins the queue."""
    while engine.counts[PENDING] > 0 and engine.requests.arrival[engine.pending[0]] <= now:
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
    heap = engine.pending
    place = engine.counts[PENDING]
    engine.counts[PENDING] += 1
    while place > 0 and _before(engine, request, heap[(place - 1) // 2]):
        heap[place] = heap[(place - 1) // 2]
        place = (place - 1) // 2
    heap[place] = request


def _pop(engine: Engine) -> int:
    heap = engine.pending
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
