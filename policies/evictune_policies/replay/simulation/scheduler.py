"""One step of vLLM's v1 Scheduler, over arrays.

Plain functions over `engine.Engine`. (vLLM 0.32, v1/core/sched/scheduler.py: `schedule` and
`update_from_output`; without speculative decoding, connectors, multi-modal inputs, priorities, and
without asynchronous scheduling, under which the next step is scheduled before this one's tokens are
known, so that blocks of output are cached, and those of finished requests freed, a step later.)
"""

from __future__ import annotations

from evictune_policies.algorithms.pool import NONE
from evictune_policies.replay.mechanics import drop_expired
from evictune_policies.replay.simulation.arrivals import leave_queue, queue_first, turn_ended
from evictune_policies.replay.simulation.engine import (
    FINISHED,
    FIRST_WAITING,
    RUNNING,
    SCHEDULED,
    Engine,
)
from evictune_policies.replay.simulation.kv_manager import (
    admit,
    extend,
    fits,
    look_up,
    release,
    tokens_of,
    visit_of,
)


def schedule(engine: Engine, state: object, now: float) -> None:
    """Choose who computes how many tokens in this step, and give them blocks.

    Those who run come first; a step in which one of them was preempted admits nobody.
    """
    drop_expired(state, engine.pool, engine.places, now)
    engine.counts[SCHEDULED] = 0
    budget = schedule_running(engine, state, now)
    if budget >= 0:
        schedule_waiting(engine, state, now, budget)


def schedule_running(engine: Engine, state: object, now: float) -> int:
    """Schedule those who run, in order of admission. The tokens left; -1 if one was preempted."""
    budget = engine.limits.max_num_batched_tokens
    preempted = False
    place = 0
    while place < engine.counts[RUNNING] and budget > 0:
        request = engine.rows.running[place]
        computed = engine.requests.computed[request]
        tokens = min(tokens_of(engine, request) - computed, budget)
        visit = visit_of(engine, request, now, 0)
        while not extend(engine, state, request, computed + tokens, visit):
            last = engine.rows.running[engine.counts[RUNNING] - 1]
            preempt(engine, state, last, now)
            preempted = True
            if last == request:
                return -1
        _take_part(engine, request, tokens)
        budget -= tokens
        place += 1
    return -1 if preempted else budget


def preempt(engine: Engine, state: object, request: int, now: float) -> None:
    """The request that was admitted last loses its blocks, and goes to the head of the queue."""
    engine.counts[RUNNING] -= 1
    release(engine, state, request, visit_of(engine, request, now, 0))
    engine.requests.computed[request] = 0
    engine.requests.preemptions[request] += 1
    queue_first(engine, request)


def schedule_waiting(engine: Engine, state: object, now: float, budget: int) -> None:
    """Admit requests in order of the queue, up to the first that does not fit."""
    requests, limits = engine.requests, engine.limits
    while budget > 0 and engine.counts[RUNNING] < limits.max_num_seqs:
        request = engine.counts[FIRST_WAITING]
        if request == NONE:
            return
        hits = look_up(engine, request)
        computed = hits * limits.block_tokens
        whole = tokens_of(engine, request)
        tokens = min(whole - computed, budget)
        if not fits(engine, request, hits, whole if limits.reserve_full_isl else computed + tokens):
            return
        if requests.cached[request] == NONE:
            requests.cached[request] = computed
            requests.lost[request] = _seen_before(engine, request, hits) * limits.block_tokens
        leave_queue(engine)
        visit = visit_of(engine, request, now, 0)
        admit(engine, state, request, hits, visit)
        extend(engine, state, request, computed + tokens, visit)
        engine.rows.running[engine.counts[RUNNING]] = request
        engine.counts[RUNNING] += 1
        _take_part(engine, request, tokens)
        budget -= tokens


def update(engine: Engine, state: object, now: float) -> None:
    """The step has been computed: whoever has no tokens left to compute gets one more, or ends."""
    requests = engine.requests
    for index in range(engine.counts[SCHEDULED]):
        request = engine.rows.scheduled[index]
        requests.computed[request] += engine.rows.tokens[index]
        if requests.computed[request] < tokens_of(engine, request):
            continue  # the prompt is not done yet
        requests.produced[request] += 1
        if requests.produced[request] == 1:
            requests.first_token[request] = now
        if requests.produced[request] == requests.output[request]:
            release(engine, state, request, visit_of(engine, request, now, 1))
            requests.finish[request] = now
            engine.counts[FINISHED] += 1
            turn_ended(engine, request, now)
    _drop_finished(engine)


def step_seconds(engine: Engine) -> float:
    """How long the scheduled step takes; see `EngineModel`."""
    limits = engine.limits
    seconds = limits.step_seconds
    for index in range(engine.counts[SCHEDULED]):
        tokens = engine.rows.tokens[index]
        before = engine.requests.computed[engine.rows.scheduled[index]]
        seconds += limits.linear * tokens + limits.quadratic * tokens * (tokens + 2 * before) / 2
    return seconds


def _take_part(engine: Engine, request: int, tokens: int) -> None:
    """A request computes so many tokens in this step."""
    place = engine.counts[SCHEDULED]
    engine.rows.scheduled[place] = request
    engine.rows.tokens[place] = tokens
    engine.counts[SCHEDULED] += 1


def _seen_before(engine: Engine, request: int, hits: int) -> int:
    """How many blocks of a prompt were in the cache once, but are not found."""
    requests = engine.requests
    begin = requests.start[request]
    count = 0
    for index in range(hits, (requests.prompt[request] - 1) // engine.limits.block_tokens):
        if engine.seen[engine.chain[begin + index]]:
            count += 1
    return count


def _drop_finished(engine: Engine) -> None:
    """Those who hold no blocks any more do not run."""
    kept = 0
    for place in range(engine.counts[RUNNING]):
        request = engine.rows.running[place]
        if engine.requests.row[request] != NONE:
            engine.rows.running[kept] = request
            kept += 1
    engine.counts[RUNNING] = kept
