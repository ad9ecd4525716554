"""OW-1, for the memory fraction: GitOps has nothing to put back. Field case 40.

The workload is not touched: its pods restart in place and take the fraction from the knob document.
A user's own edit of the manifest is the new baseline, not something to fight.
"""

from __future__ import annotations

import copy
from decimal import Decimal
from typing import Any

import pytest

from tests.support import memory_case
from tests.support.loop_case import DEPLOYMENT, EPOCH, PODS, play
from tests.support.memory_case import MemoryCase
from tests.support.shortage import ENOUGH, short_of_blocks

MARKS = {
    "argo cd": {"argocd.argoproj.io/tracking-id": "apps:apps/Deployment:serve-a/owl-8b"},
    "flux": {"kustomize.toolkit.fluxcd.io/name": "apps"},
    "helm": {"meta.helm.sh/release-name": "owl"},
}


async def _until_kept(case: MemoryCase) -> None:
    while "Kept" not in case.told:
        assert case.now < EPOCH + 3 * 3600, case.told
        await case.run(30)


@pytest.mark.parametrize("mark", MARKS)
def test_a_workload_of_somebody_else_keeps_its_manifest_and_its_pods(mark: str) -> None:
    case = MemoryCase(short_of_blocks)
    case.api.objects[DEPLOYMENT]["metadata"]["annotations"] = MARKS[mark]

    async def scenario(case: MemoryCase) -> None:
        def kept() -> Any:
            deployment = copy.deepcopy(case.api.objects[DEPLOYMENT])
            uids = [case.api.objects[f"{PODS}/{p.name}"]["metadata"]["uid"] for p in case.life.pods]
            return deployment["spec"], deployment["metadata"]["annotations"], uids

        before = kept()
        await _until_kept(case)
        assert kept() == before
        assert case.fractions == ["0.87", "0.87"]
        assert [pod.restarts for pod in case.life.pods] == [1, 1]
        assert case.written() == {"evictionpolicies/status", "configmaps", "events"}

    play(scenario, case)


def test_a_user_s_own_edit_is_the_new_baseline(monkeypatch: pytest.MonkeyPatch) -> None:
    """0.87 is kept; then the user rolls 0.80 out. The document lets go of it, once and for all."""
    case = MemoryCase(short_of_blocks)

    async def scenario(case: MemoryCase) -> None:
        await _until_kept(case)
        case.load_of = lambda pod: ENOUGH
        # The new pods' command line: the document has overridden it so far.
        monkeypatch.setattr(memory_case, "MANIFEST", Decimal("0.80"))
        monkeypatch.setattr("tests.support.memory_world.MANIFEST", Decimal("0.80"))
        written = len(case.documents())
        await case.run(1200)
        assert case.document is not None
        assert "gpuMemoryUtilization" not in case.document["default"]
        assert case.fractions == ["0.80", "0.80"]
        assert "gpuMemoryUtilization" not in case.status["applied"]["values"]
        told = [b["message"] for _, path, b in case.api.requests if path.endswith("/events")]
        assert any("was changed from 0.85 to 0.8" in message for message in told)
        await case.run(3600)
        assert len(case.documents()) - written < 10
        assert case.fractions == ["0.80", "0.80"]

    play(scenario, case)
