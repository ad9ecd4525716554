"""Replicas change: newcomers start with what is in force, without a change; none left is said."""

from __future__ import annotations

from tests.support.installation import wait_for
from tests.support.serving import WORKLOAD, Serving


def test_newcomers_have_the_values_in_force(serving: Serving) -> None:
    serving.bring_into_force()
    revision, decided = serving.status()["applied"]["revision"], serving.reasons().count("Intended")
    serving.kubectl(f"scale deployment {WORKLOAD} --replicas=3")
    serving.await_rollout()
    wait_for("three engines in force", serving.in_force)
    engines = serving.status()["engines"]
    assert engines["total"] == engines["ready"] == 3
    assert engines["changedTime"]

    serving.kubectl(f"scale deployment {WORKLOAD} --replicas=0")
    wait_for("said", lambda: serving.condition("TargetFound")[:2] == ("False", "NoReadyEngines"))
    assert serving.document() is not None
    serving.kubectl(f"scale deployment {WORKLOAD} --replicas=1")
    serving.await_rollout()
    wait_for("in force again", serving.in_force)
    assert serving.status()["applied"]["revision"] == revision
    assert serving.reasons().count("Intended") == decided
