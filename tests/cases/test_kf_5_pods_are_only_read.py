"""KF-5: an operator that writes to every pod. Field case 46.

Pods are listed at each tick and never written; the chart grants no right to write them, so that a
regression would show as 403. What a whole run asks of a real API server, by its audit log:
tests/integration/test_operator_rights.py.
"""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.support.loop_case import PODS, LoopCase, play, pod_body

CHART = Path(__file__).parents[2] / "charts/evictune/templates"


def test_two_hundred_pods_unchanged_for_ten_minutes_are_never_written() -> None:
    case = LoopCase(pods=1, behavior={"interval": "5m", "settle": "5m", "cooldown": "10m"})
    for number in range(1, 200):
        # Not ready: they cost a test no page, and the list all the same.
        case.api.put(f"{PODS}/owl-8b-1-{number}", pod_body(f"owl-8b-1-{number}", ready=False))
    completed = pod_body("owl-8b-1-200", phase="Succeeded", ready=False)
    leaving = pod_body("owl-8b-1-201", deletionTimestamp="2026-11-30T00:00:00Z")
    for body in (completed, leaving):
        case.api.put(f"{PODS}/{body['metadata']['name']}", body)

    async def scenario(case: LoopCase) -> None:
        await case.run(600)
        assert [r for r in case.api.requests if "/pods" in r[1]] == []
        assert case.status["engines"]["ready"] == 1

    play(scenario, case)


def test_a_pod_completed_or_leaving_is_no_engine() -> None:
    case = LoopCase(pods=2)

    async def scenario(case: LoopCase) -> None:
        await case.tick()
        assert case.status["engines"]["ready"] == 2
        leaving = pod_body("owl-8b-1-1", deletionTimestamp="2026-11-30T00:00:00Z")
        case.api.put(f"{PODS}/owl-8b-1-1", leaving)
        await case.tick()
        assert case.status["engines"]["ready"] == 1

    play(scenario, case)


def test_the_chart_grants_no_right_to_write_a_pod_or_a_workload() -> None:
    text = (CHART / "_helpers.tpl").read_text("utf-8")
    rules = text.partition('define "evictune.rules" -}}')[2].partition("{{- end }}")[0]
    for rule in yaml.safe_load(rules):
        verbs = set(rule["verbs"])
        if set(rule["resources"]) & {"pods", "deployments", "statefulsets", "replicasets"}:
            assert verbs <= {"get", "list", "watch"}, rule
        assert "*" not in verbs | set(rule["resources"])
        assert not verbs & {"delete", "deletecollection", "impersonate", "escalate"}, rule
