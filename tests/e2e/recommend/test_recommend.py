"""Mode Recommend on a real engine: status and Events are written, and nothing else."""

from __future__ import annotations

import pytest

from tests.support.background_load import BackgroundLoad
from tests.support.loop import MIX, POLICY, Pace, policy, stock
from tests.support.stack import Stack

pytestmark = pytest.mark.timeout(1800)


def has_recommendation(stack: Stack) -> bool:
    target = stack.status(POLICY).get("recommendation", {}).get("target", {})
    return "xiTokens" in target


def test_recommend_writes_nothing_but_status_and_events(stack: Stack, pace: Pace) -> None:
    """Read from the API server's audit log. The Lease is no policy's."""
    began = len(stack.operator_writes())
    stack.apply_policy(policy(POLICY, "Recommend", pace))
    with BackgroundLoad(stack.engine.url, MIX):
        stack.wait_for("a recommendation", lambda: has_recommendation(stack), pace.patience)
        ticks = stack.ticks(POLICY)
        stack.wait_for("five ticks more", lambda: stack.ticks(POLICY) >= ticks + 5, 60)
    writes = stack.operator_writes()[began:]
    written = {(w["objectRef"]["resource"], w["objectRef"].get("subresource", "")) for w in writes}
    # Of the Lease, only its renewals fall into this time.
    assert written - {("leases", "")} == {("evictionpolicies", "status"), ("events", "")}
    for write in writes:
        if write["objectRef"]["resource"] == "events":
            involved = write["requestObject"]["involvedObject"]
            assert (involved["kind"], involved["name"]) == ("EvictionPolicy", POLICY)
    assert stack.document() is None
    assert stock(stack)
