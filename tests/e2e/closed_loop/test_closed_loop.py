"""The closed loop on real parts: kubelet, vLLM, Prometheus, Helm, and the operator in a pod.

The tests share one engine and run in this order; each brings the loop to where it starts from.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from tests.support.background_load import BackgroundLoad
from tests.support.loop import (
    MIX,
    POLICY,
    REACH_SECONDS,
    Pace,
    ensure_in_force,
    in_force,
    policy,
    reason_of,
    stock,
)
from tests.support.stack import CONFIG_MAP, NAMESPACE, Stack

pytestmark = pytest.mark.timeout(1800)

PROMPT = list(range(10, 200))
# For how long the engine follows a document that nobody renews, where a test waits for it.
SHORT_TTL = 20


def test_auto_brings_xi_to_the_running_engine(stack: Stack, pace: Pace) -> None:
    """The same pod, the same process, another xi."""
    identity = stack.identity()
    stack.apply_policy(policy(POLICY, "Auto", pace))
    with BackgroundLoad(stack.engine.url, MIX):
        stack.wait_for("a xi in force", lambda: in_force(stack), pace.patience)
    assert stack.identity() == identity
    status = stack.status(POLICY)
    document = stack.document()
    assert document is not None
    assert document["revision"] >= status["applied"]["revision"]
    assert status["engines"]["total"] == status["engines"]["ready"] == 1
    assert {"Intended", "Acknowledged"} <= {each["reason"] for each in status["decisions"]}


def test_its_rights_suffice(stack: Stack) -> None:
    """The chart's rights are few; no request of the operator was refused for want of one."""
    refused = [
        f"{event['verb']} {event['requestURI']}"
        for event in stack.operator_requests()
        if event.get("responseStatus", {}).get("code") in {401, 403}
    ]
    assert not refused


def test_a_broken_document_harms_nobody(stack: Stack, pace: Pace) -> None:
    """The engine refuses it and says why; old values stay, the pod serves, answers are the same."""
    ensure_in_force(stack, pace)
    identity, before, document = stack.identity(), stack.engine.in_force(), stack.document()
    assert document is not None
    answer = stack.engine.complete(PROMPT)
    garbage = json.dumps({"data": {"knobs.json": '{"schema": "evictune.io/knobs/v1", "rev'}})
    stack.cluster.kubectl(
        "patch", "configmap", CONFIG_MAP, "-n", NAMESPACE, "--type=merge", "-p", garbage
    )
    stack.wait_for("the reason shown", lambda: stack.engine.refusal(), REACH_SECONDS)
    assert stack.engine.refusal().startswith("Malformed"), stack.engine.refusal()
    if datetime.now(UTC) < datetime.fromisoformat(document["expires"]):
        assert stack.engine.in_force() == before
    assert stack.engine.complete(PROMPT) == answer
    assert stack.identity() == identity
    assert stack.engine.healthy()
    # A person's edit is not written over; with it gone, the operator goes on.
    stack.patch_policy(POLICY, {"suspend": False})
    stack.wait_for("said in status", lambda: reason_of(stack, "Ready") == "Conflict", 30)
    stack.cluster.kubectl("delete", "configmap", CONFIG_MAP, "-n", NAMESPACE)
    stack.wait_for("followed again", lambda: follows(stack), REACH_SECONDS)
    assert stack.identity() == identity


def test_without_the_operator_the_engine_returns_to_stock_lru(stack: Stack, pace: Pace) -> None:
    """It stays away past knobTTL; when it comes back, so does xi."""
    ensure_in_force(stack, pace)
    identity = stack.identity()
    stack.patch_policy(POLICY, {"behavior": {"knobTTL": f"{SHORT_TTL}s"}})
    stack.wait_for("the document renewed", lambda: expires(stack) <= SHORT_TTL, 30)
    stack.scale_operator(0)
    stack.wait_for("stock LRU", lambda: stock(stack), SHORT_TTL + 15)
    assert expires(stack) <= 0, "it holds until it expires"
    assert stack.identity() == identity
    assert stack.engine.healthy()
    stack.scale_operator(1)
    stack.wait_for("in force again", lambda: in_force(stack), REACH_SECONDS)
    assert stack.identity() == identity


def follows(stack: Stack) -> bool:
    """Whether there is a document, and the engine shows its revision: whatever it says by now."""
    document, shown = stack.document(), stack.engine.in_force()
    return bool(document and shown and shown.revision == document["revision"])


def expires(stack: Stack) -> float:
    """Seconds until the document in the cluster expires."""
    document = stack.document()
    assert document is not None
    return (datetime.fromisoformat(document["expires"]) - datetime.now(UTC)).total_seconds()
