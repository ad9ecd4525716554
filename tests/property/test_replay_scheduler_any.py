"""Whatever the policy and the load: what must hold in the simulated engine after every step."""

from __future__ import annotations

import numpy as np
from evictune_policies.algorithms.catalog import POLICIES, Cost, Setting
from evictune_policies.algorithms.pool import NONE
from evictune_policies.replay.simulation.arrivals import arrive
from evictune_policies.replay.simulation.engine import (
    FINISHED,
    FIRST_WAITING,
    FREE,
    RUNNING,
    SCHEDULED,
    Engine,
    engine_chains,
    new_engine,
)
from evictune_policies.replay.simulation.engine_model import EngineModel
from evictune_policies.replay.simulation.scheduler import schedule, step_seconds, update
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.timed_workloads import BLOCK, WORKLOADS, trace_of

ONLINE = [name for name, policy in POLICIES.items() if not policy.offline]
ENGINES = st.builds(
    EngineModel,
    max_num_batched_tokens=st.integers(8, 40),
    max_num_seqs=st.integers(1, 8),
    scheduler_reserve_full_isl=st.booleans(),
    watermark=st.sampled_from([0.0, 0.1]),
    step_seconds=st.just(0.25),
    cost=st.just(Cost(2**-6)),
)


def held(engine: Engine) -> np.ndarray:
    """Per block, how many running requests have it in their row."""
    count = np.zeros(len(engine.pool.content), int)
    for request in engine.rows.running[: engine.counts[RUNNING]]:
        row = engine.requests.row[request]
        blocks = engine.table[row, : engine.rows.held[row]]
        assert len(set(blocks)) == len(blocks)
        filled = engine.rows.filled[row]
        start = engine.requests.start[request]
        assert list(engine.pool.content[blocks[:filled]]) == list(
            engine.chain[start : start + filled]
        ), "a running request lost a block"
        count[blocks] += 1
    return count


def check(engine: Engine, model: EngineModel) -> None:
    """What must hold between steps."""
    pool = engine.pool
    references = held(engine)
    assert list(references) == list(pool.references)
    assert np.sum(references == 0) == engine.counts[FREE]
    blank = set(engine.places.blank[: engine.places.blanks[0]].tolist())
    assert blank == set(np.flatnonzero((pool.content == NONE) & (references == 0)).tolist())
    assert engine.counts[RUNNING] <= model.max_num_seqs
    assert engine.rows.tokens[: engine.counts[SCHEDULED]].sum() <= model.max_num_batched_tokens


@settings(max_examples=25)
@given(
    policy=st.sampled_from(ONLINE),
    workload=st.sampled_from(sorted(WORKLOADS)),
    seed=st.integers(0, 10**6),
    capacity=st.integers(26, 60),
    model=ENGINES,
    outputs_known=st.booleans(),
)
def test_no_block_is_lost_or_taken_from_who_runs(
    policy: str, workload: str, seed: int, capacity: int, model: EngineModel, outputs_known: bool
) -> None:
    trace = trace_of(WORKLOADS[workload](seed, 25), outputs_known)
    chains = engine_chains(trace)
    engine = new_engine(trace, chains, capacity, model, POLICIES[policy].suffix_first)
    state = POLICIES[policy].build(Setting(capacity, BLOCK, chains, 24, 6))
    now, idle = 0.0, 0
    while engine.counts[FINISHED] < trace.requests:
        arrive(engine, now)
        if engine.counts[RUNNING] == 0 and engine.counts[FIRST_WAITING] == NONE:
            now = engine.requests.arrival[engine.requests.pending[0]]
            continue
        schedule(engine, state, now)
        check(engine, model)
        idle = 0 if engine.counts[SCHEDULED] else idle + 1
        assert idle < 2, "nobody makes progress"
        now += step_seconds(engine)
        update(engine, state, now)
    requests = engine.requests
    assert engine.counts[FREE] == capacity
    assert (requests.cached % BLOCK == 0).all()
    assert (requests.cached < requests.prompt).all()
    assert (requests.first_token > requests.arrival).all()
    assert (requests.finish >= requests.first_token).all()
