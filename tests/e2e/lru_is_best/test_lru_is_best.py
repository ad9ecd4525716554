"""Where stock LRU serves best, or no order of eviction helps, nothing is changed."""

from __future__ import annotations

import pytest

from demo.constants import Load
from tests.support.background_load import BackgroundLoad
from tests.support.loop import (
    MIN_REQUESTS,
    ONE_CONVERSATION,
    ONE_DOCUMENT,
    ONE_SHOTS,
    REACH_SECONDS,
    Pace,
    policy,
    stock,
)
from tests.support.stack import NAMESPACE, Stack

pytestmark = pytest.mark.timeout(1800)

FEWER_REQUESTS = MIN_REQUESTS // 2


@pytest.mark.parametrize(
    ("name", "regime", "load", "factor"),
    [
        # All that comes back is still there, and the objective is met.
        ("met", "Healthy", ONE_CONVERSATION, 5.0),
        # It is not met, but no cached block is evicted: no order of eviction would help.
        ("out-of-reach", "NoReuse", ONE_DOCUMENT, 0.01),
        # Blocks are evicted all the time, but hardly any of them would be asked for again.
        ("never-again", "NoReuse", ONE_SHOTS, 0.01),
    ],
)
def test_where_lru_is_best_nothing_changes(
    stack: Stack, pace: Pace, name: str, regime: str, load: Load, factor: float
) -> None:
    """Ten ticks, no change."""
    stack.wait_for("stock LRU", lambda: stock(stack), REACH_SECONDS)
    before = len(stack.operator_writes())
    body = policy(name, "Auto", pace, factor * pace.threshold)
    # A machine that others use meanwhile serves fewer than it did when its pace was taken.
    body["spec"]["slo"]["ttft"]["minRequests"] = FEWER_REQUESTS
    stack.apply_policy(body)
    with BackgroundLoad(stack.engine.url, load):
        stack.wait_for(f"regime {regime}", lambda: _regime(stack, name) == regime, pace.patience)
        ticks = stack.ticks(name)
        stack.wait_for("ten ticks", lambda: stack.ticks(name) >= ticks + 10, 120)
        # Between them a busy machine may have served too few: Unknown for a moment.
        stack.wait_for("the same", lambda: _regime(stack, name) == regime, pace.patience)
    writes = stack.operator_writes()[before:]
    assert "configmaps" not in {write["objectRef"]["resource"] for write in writes}
    assert stack.document() is None
    reasons = {each["reason"] for each in stack.status(name).get("decisions", [])}
    assert "Intended" not in reasons
    assert stock(stack)
    stack.cluster.kubectl("delete", "evp", name, "-n", NAMESPACE)


def _regime(stack: Stack, name: str) -> str:
    return str(stack.status(name).get("regime", {}).get("name", ""))
