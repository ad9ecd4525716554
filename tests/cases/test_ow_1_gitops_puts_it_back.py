"""OW-1: a GitOps controller puts back what an operator edits. Field case 40.

Manifests are never edited, so there is nothing to put back. What could be fought over is the knob
document: whoever sets it is respected and named, and whoever deletes it again and again is left
alone. With a real API server: tests/integration/test_operator_policies.py.
"""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from evictune.act.knobs import render_document
from evictune.api.decision import WriteKnobs
from evictune.api.knobs import KnobValues
from evictune.api.reasons import Reason

from tests.support.fake_engines import FAST
from tests.support.loop_case import CONFIG_MAP, DEPLOYMENT, LoopCase, play

MARKS = {
    "argo cd": {"argocd.argoproj.io/tracking-id": "apps:apps/Deployment:serve-a/owl-8b"},
    "flux": {"kustomize.toolkit.fluxcd.io/name": "apps"},
    "helm": {"meta.helm.sh/release-name": "owl"},
}


@pytest.mark.parametrize("mark", MARKS)
def test_a_workload_of_somebody_else_is_tuned_and_never_touched(mark: str) -> None:
    case = LoopCase()
    case.api.objects[DEPLOYMENT]["metadata"]["annotations"] = MARKS[mark]

    async def scenario(case: LoopCase) -> None:
        before = copy.deepcopy(case.api.objects[DEPLOYMENT])
        await case.run(1200)
        assert "Kept" in case.told
        assert case.api.objects[DEPLOYMENT] == before
        assert case.written() == {"evictionpolicies/status", "configmaps", "events"}

    play(scenario, case)


def _set_by(case: LoopCase, manager: str, **default: Any) -> None:
    """Another field manager sets the document and owns it since."""
    effect = WriteKnobs(99, KnobValues(64, 200), 3600.0)
    body = case.api.get_or_none(CONFIG_MAP) or {"metadata": {}}
    managed = [{"manager": manager, "fieldsV1": {"f:data": {"f:knobs.json": {}}}}]
    body["metadata"]["managedFields"] = managed
    text = json.dumps(json.loads(render_document(effect, case.now)) | default)
    case.api.put(CONFIG_MAP, body | {"data": {"knobs.json": text}})


@pytest.mark.parametrize("manager", ["argocd-controller", "kustomize-controller", "kubectl-edit"])
def test_whoever_sets_the_document_is_named_and_not_fought(manager: str) -> None:
    case = LoopCase()

    async def scenario(case: LoopCase) -> None:
        await case.run(1200)
        _set_by(case, manager)
        theirs = case.api.objects[CONFIG_MAP]
        written = len(case.documents())
        await case.run(1800)
        assert len(case.documents()) == written
        assert case.api.objects[CONFIG_MAP] == theirs
        status, reason, message = case.condition("Ready")
        assert (status, reason) == ("False", "Conflict")
        assert manager in message

    play(scenario, case)


def test_an_edit_while_a_change_settles_ends_the_change() -> None:
    case = LoopCase()

    async def scenario(case: LoopCase) -> None:
        while "Acknowledged" not in case.told:
            await case.run(30)
        _set_by(case, "kubectl-edit")
        await case.run(1200)
        assert case.told.count("Abandoned") == 1
        assert "pending" not in case.status
        assert case.changes() == 1
        # The person deletes the ConfigMap: that hands it back.
        del case.api.objects[CONFIG_MAP]
        case.behave = lambda values: FAST
        await case.run(600)
        assert case.condition("Ready")[:2] == ("True", "Ready")
        assert case.regime == Reason.HEALTHY

    play(scenario, case)


def test_what_prunes_the_document_is_fought_three_times_an_hour_at_most() -> None:
    case = LoopCase(behavior={"interval": "1m", "settle": "5m", "cooldown": "10m"})

    async def scenario(case: LoopCase) -> None:
        await case.run(1200)
        # T-LRU is gone with the document, and the target missed again: no reason to fight.
        for _ in range(2):
            before = len(case.documents())
            for _ in range(60):
                case.api.objects.pop(CONFIG_MAP, None)
                await case.run(60)
            assert len(case.documents()) - before <= 3
            assert case.condition("PolicyActive")[:2] == ("False", "FightDetected")

    play(scenario, case)


def test_annotations_that_others_change_at_every_tick_are_nothing_to_us() -> None:
    case = LoopCase()

    async def scenario(case: LoopCase) -> None:
        await case.run(1200)
        requests = [r for r in case.api.requests if not r[1].endswith("/status")]
        case.behave = lambda values: FAST
        for number in range(20):
            for path in (DEPLOYMENT, CONFIG_MAP):
                body = case.api.get_or_none(path)
                assert body is not None
                body["metadata"]["annotations"] = {"example.com/seen": str(number)}
                case.api.put(path, body)
            await case.run(30)
        assert [r for r in case.api.requests if not r[1].endswith("/status")] == requests

    play(scenario, case)
