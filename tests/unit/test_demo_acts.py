"""The demonstration in virtual time: the operator's real judgement around a model of the engine.

The acts must be long enough for the search, at the pace that the constants ask for.
"""

from __future__ import annotations

import pytest
from evictune.api.decision import DecisionRecord
from evictune.api.parse import parse_policy
from evictune.api.reasons import Reason

from demo.constants import LOAD, OBJECTIVE, RULE, Phase
from demo.manifests import Target, policy
from tests.support.plant import Load, Plant

# Measured on two cores: prefill, and what a request takes besides.
TOKENS_PER_SECOND = 2700.0
OVERHEAD = 0.03
# From the document to the engine's acknowledgement.
DELAY = 2.0


def pace(requests: int) -> float:
    """Seconds that so many requests take under stock LRU with three conversations."""
    turns = 1 / (1 + LOAD.one_shots)
    tokens = turns * 1530 + (1 - turns) * LOAD.one_shot_tokens
    return float(round(requests * (tokens / TOKENS_PER_SECOND + OVERHEAD)))


@pytest.fixture(scope="module")
def played() -> tuple[Plant, dict[str, float]]:
    """The plant after both acts, and when the steady part of each began."""
    target = Target(
        threshold=OBJECTIVE.threshold_tokens / TOKENS_PER_SECOND,
        window=pace(OBJECTIVE.window_requests),
        settle=pace(OBJECTIVE.settle_requests),
    )
    body = policy(target)
    body["metadata"] |= {
        "uid": "uid",
        "generation": 1,
        "resourceVersion": "1",
        "creationTimestamp": "2026-11-29T12:00:00Z",
    }
    plant = Plant(
        parse_policy(body),
        load(LOAD.phases[0]),
        tokens_per_second=TOKENS_PER_SECOND,
        overhead=OVERHEAD,
        delay=DELAY,
    )
    steady, conversations = {}, LOAD.phases[0].conversations
    for phase in LOAD.phases:
        if phase.conversations != conversations:
            conversations = phase.conversations
            plant.load(load(phase))
        requests = phase.rounds * phase.conversations * (1 + LOAD.one_shots)
        serve(plant, round(requests * (1 - RULE.steady_share)))
        steady[phase.name] = plant.now
        serve(plant, requests - round(requests * (1 - RULE.steady_share)))
        steady[f"{phase.name} ends"] = plant.now
    return plant, steady


def load(phase: Phase) -> Load:
    return Load(
        phase.conversations,
        LOAD.document_tokens,
        LOAD.growth_tokens,
        LOAD.turns,
        LOAD.stagger,
        LOAD.one_shots,
        LOAD.one_shot_tokens,
    )


def serve(plant: Plant, requests: int) -> None:
    goal = len(plant.served) + requests
    while len(plant.served) < goal:
        plant.run(0.01)


def last(plant: Plant, reason: Reason, before: float) -> DecisionRecord:
    return [record for record in plant.changes(reason) if record.time <= before][-1]


def test_the_first_act_meets_its_target_before_its_steady_part(
    played: tuple[Plant, dict[str, float]],
) -> None:
    plant, steady = played
    found = last(plant, Reason.ACKNOWLEDGED, before=steady["three"])
    assert found.change_to is not None
    assert found.change_to.xi_tokens == 256
    kept = last(plant, Reason.KEPT, before=steady["three ends"])
    assert kept.change_to == found.change_to


def test_the_second_act_finds_what_serves_best_before_its_steady_part(
    played: tuple[Plant, dict[str, float]],
) -> None:
    plant, steady = played
    found = last(plant, Reason.ACKNOWLEDGED, before=steady["five"])
    assert found.change_to is not None
    assert found.change_to.xi_tokens == 512
    assert plant.memory.applied is not None
    assert plant.memory.applied.values == found.change_to


def test_the_second_act_ends_with_the_target_said_to_be_out_of_reach(
    played: tuple[Plant, dict[str, float]],
) -> None:
    plant, steady = played
    # Before its steady part: a real engine's noise costs the search a step or two more.
    said = last(plant, Reason.EXHAUSTED, before=steady["five"])
    assert said.time > steady["arrival ends"]
