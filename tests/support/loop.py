"""A policy on the real engine at the pace of this machine: what behaviours of the loop share."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import Any

from tests.support.background_load import BackgroundLoad, conversations
from tests.support.stack import NAMESPACE, WORKLOAD, Stack
from tests.support.vllm_pod import InForce

POLICY = "chat"
INTERVAL = 1
KNOB_TTL = 90
# A returning conversation of the load has at least 1,400 tokens, all evicted under LRU; one whose
# uncached part takes longer than 400 tokens take violates the objective.
THRESHOLD_TOKENS = 400
# One request in five is a turn of a conversation: the 85th percentile of 20 is one of theirs.
QUANTILE = "0.85"
MIN_REQUESTS = 20
# How long a changed ConfigMap takes to the engine (the kubelet looks each second), on a machine
# that is busy.
REACH_SECONDS = 60.0
MIX = conversations(3, one_shots=4)
ONE_CONVERSATION = conversations(1, one_shots=4)
ONE_DOCUMENT = replace(conversations(1, one_shots=0), growth_tokens=0)
ONE_SHOTS = replace(
    conversations(1, one_shots=9), document_tokens=40, growth_tokens=0, one_shot_tokens=600
)


@dataclass(frozen=True)
class Pace:
    """How fast this machine is now: nothing below depends on what a second is worth.

    threshold: seconds that the prefill of THRESHOLD_TOKENS takes.
    """

    threshold: float

    @property
    def window(self) -> int:
        """Seconds for MIN_REQUESTS and some more; a request of the mix is about 500 tokens."""
        return max(15, math.ceil(2 * MIN_REQUESTS * self.threshold))

    @property
    def patience(self) -> float:
        """Seconds within which a change must have been decided, made and judged."""
        return 180.0 + 8 * self.window


def policy(name: str, mode: str, pace: Pace, threshold: float | None = None) -> dict[str, Any]:
    """A policy on the engine's Deployment, with the pace of a test."""
    milliseconds = (threshold or pace.threshold) * 1000
    objective = {
        "quantile": QUANTILE,
        "threshold": f"{max(milliseconds, 1):.0f}ms",
        "window": f"{pace.window}s",
        "minRequests": MIN_REQUESTS,
    }
    return {
        "apiVersion": "evictune.io/v1alpha1",
        "kind": "EvictionPolicy",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": WORKLOAD},
            "mode": mode,
            "slo": {"ttft": objective},
            "knobs": {
                "tlru": {"xiTokens": {"min": 32, "max": 4096}, "qHatTokens": {"min": 60, "max": 60}}
            },
            "behavior": {
                "interval": f"{INTERVAL}s",
                "settle": "5s",
                "cooldown": "2s",
                "knobTTL": f"{KNOB_TTL}s",
            },
        },
    }


def applied(stack: Stack) -> dict[str, Any]:
    """status.applied while no change is under way."""
    status = stack.status(POLICY)
    found: dict[str, Any] = status.get("applied", {})
    return {} if "pending" in status else found


def in_force(stack: Stack) -> bool:
    """Whether the engine has what status says was applied, and status says that it has.

    A document that was taken away a moment ago is in force no longer, though the engine does not
    know it yet.
    """
    wanted = applied(stack)
    if "xiTokens" not in wanted.get("values", {}) or stack.document() is None:
        return False
    shown = stack.engine.in_force()
    expected = InForce("t-lru", wanted["values"]["xiTokens"], wanted["revision"])
    return shown == expected and stack.status(POLICY)["engines"]["acknowledged"] == 1


def stock(stack: Stack) -> bool:
    shown = stack.engine.in_force()
    return shown is not None and shown.policy == "lru" and shown.xi_tokens is None


def ensure_in_force(stack: Stack, pace: Pace) -> None:
    """Bring the loop to where a xi is in force and stays: suspended, and nothing under way."""
    if stack.objects().find("evp", POLICY) and frozen(stack):
        return
    stack.apply_policy(policy(POLICY, "Auto", pace))
    stack.patch_policy(POLICY, {"suspend": False})
    with BackgroundLoad(stack.engine.url, MIX):
        stack.wait_for("a xi in force, and kept", lambda: frozen(stack), pace.patience)


def frozen(stack: Stack) -> bool:
    """Suspend the policy if a xi is in force; undo it if another change was faster."""
    if not in_force(stack):
        return False
    stack.patch_policy(POLICY, {"suspend": True})
    time.sleep(2 * INTERVAL)
    if in_force(stack):
        return True
    stack.patch_policy(POLICY, {"suspend": False})
    return False


def reason_of(stack: Stack, condition: str) -> str:
    """The reason of the policy's condition of a type."""
    conditions = stack.status(POLICY)["conditions"]
    return str(next(each["reason"] for each in conditions if each["type"] == condition))
