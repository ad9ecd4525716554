"""A policy is deleted: the running engine returns to stock LRU."""

from __future__ import annotations

import pytest

from tests.support.loop import POLICY, REACH_SECONDS, Pace, ensure_in_force, stock
from tests.support.stack import NAMESPACE, Stack
from tests.support.vllm_pod import InForce

pytestmark = pytest.mark.timeout(1800)


def test_a_deleted_policy_returns_the_engine_to_stock_lru(stack: Stack, pace: Pace) -> None:
    """The ConfigMap is collected with its owner, and the optional mount empties."""
    ensure_in_force(stack, pace)
    identity = stack.identity()
    stack.cluster.kubectl("delete", "evp", POLICY, "-n", NAMESPACE, "--timeout=30s")
    stack.wait_for("the document collected", lambda: stack.document() is None, REACH_SECONDS)
    stack.wait_for("stock LRU", lambda: stock(stack), REACH_SECONDS)
    assert stack.engine.in_force() == InForce("lru", None, 0)
    assert stack.identity() == identity
