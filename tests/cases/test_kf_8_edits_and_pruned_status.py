"""KF-8: edits that are not seen, and a status that an older definition prunes. Field case 49.

With a real API server and an older definition: tests/integration/test_operator_definition.py.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import pytest
from evictune.act.status import StatusPrunedError
from evictune.api.reasons import Reason
from evictune.kube import ApiError

from tests.support.fake_api import FakeApi
from tests.support.fake_engines import FAST
from tests.support.loop_case import CONFIG_MAP, POLICIES, LoopCase, play

WRITE = ("PATCH", CONFIG_MAP)


def test_a_bound_below_what_is_in_force_is_used_by_the_next_tick() -> None:
    case = LoopCase()

    async def scenario(case: LoopCase) -> None:
        await case.run(1200)
        xi = case.xi
        assert xi is not None
        assert xi > 512
        low = {"xiTokens": {"min": 32, "max": 512}, "qHatTokens": {"min": 200, "max": 200}}
        case.edit(knobs={"tlru": low})
        await case.run(900)
        assert case.xi == 512, "brought within the bounds, though every objective is met"
        assert case.status["observedGeneration"] == case.policy["metadata"]["generation"] == 2
        assert all(each["observedGeneration"] == 2 for each in case.status["conditions"])

    play(scenario, case)


@pytest.mark.parametrize("phase", ["Acknowledging", "Settling"])
def test_suspend_stops_writes_at_once_also_while_waiting(phase: str) -> None:
    case = LoopCase()

    async def scenario(case: LoopCase) -> None:
        while "pending" not in case.policy.get("status", {}):
            await case.tick()
            if "pending" not in case.status:
                case.now += 30
        if phase == "Acknowledging":
            case.deaf = set(case.engines)
        for _ in range(4):
            case.now += 1
            await case.tick()
        assert case.status["pending"]["phase"] == phase
        case.edit(suspend=True)
        written = len(case.documents())
        case.behave = lambda values: FAST
        await case.run(1500)
        assert len(case.documents()) == written
        assert case.condition("Ready")[1] == "Suspended"
        assert case.status["pending"]["phase"] == phase
        case.edit(suspend=False)
        case.deaf = set()
        await case.run(900)
        assert "Kept" in case.told, "goes on where it stood"

    play(scenario, case)


def test_suspend_before_the_document_is_written_writes_none() -> None:
    case = LoopCase()

    async def scenario(case: LoopCase) -> None:
        refusal = ApiError(500, "InternalError", "etcd is away")
        case.api.fault = lambda method, path: refusal if (method, path) == WRITE else None
        with pytest.raises(ApiError):
            await case.run(300)
        assert case.status["pending"]["phase"] == "Writing"
        case.edit(suspend=True)
        case.api.fault = lambda method, path: None
        await case.run(1800)
        assert "pending" not in case.status
        assert case.documents() == []
        assert case.condition("Ready")[1] == "Suspended"

    play(scenario, case)


def test_edits_at_every_tick_are_each_observed_and_begin_no_change_twice() -> None:
    case = LoopCase()

    async def scenario(case: LoopCase) -> None:
        for number in range(30):
            case.edit(behavior={"interval": f"{20 + number}s", "settle": "5m", "cooldown": "10m"})
            await case.tick()
            case.now += 20
            assert case.status["observedGeneration"] == number + 2
            assert case.outcomes[-1] is not None
            assert case.outcomes[-1].interval == 20 + number
        assert case.changes() == 1

    play(scenario, case)


class OldDefinition(FakeApi):
    """An API server whose definition of the policy does not know a field of the status."""

    def __init__(self, objects: Mapping[str, Any], unknown: str) -> None:
        super().__init__()
        self.objects = copy.deepcopy(dict(objects))
        self.unknown = unknown

    def request(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        answer = super().request(method, path, **options)
        if path.endswith("/status"):
            answer["status"].pop(self.unknown, None)
            self.objects[path.removesuffix("/status")].get("status", {}).pop(self.unknown, None)
        return answer


@pytest.mark.parametrize("unknown", ["pending", "quarantine", "lastChangeTime", "decisions"])
def test_an_older_definition_is_named_and_nothing_is_changed_without_memory(unknown: str) -> None:
    case = LoopCase()
    case.api = OldDefinition(case.api.objects, unknown)
    for engine in case.engines.values():
        engine.api = case.api  # type: ignore[assignment]
    case.start()

    async def scenario(case: LoopCase) -> None:
        with pytest.raises(StatusPrunedError) as raised:
            await case.run(1200)
        assert f"status.{unknown}" in str(raised.value)
        assert "evictune crd | kubectl apply" in str(raised.value)
        assert CONFIG_MAP not in case.api.objects

    play(scenario, case)


def test_memory_that_was_lost_does_not_undo_what_is_in_force() -> None:
    """A status restored from nothing: the document says what is applied."""
    case = LoopCase()

    async def scenario(case: LoopCase) -> None:
        await case.run(1200)
        xi = case.xi
        del case.api.objects[f"{POLICIES}/owl-chat"]["status"]
        case.start()
        await case.run(600)
        assert case.xi == xi
        assert case.status["applied"]["values"]["xiTokens"] == xi
        assert case.changes() == 1
        assert case.regime == Reason.HEALTHY

    play(scenario, case)
