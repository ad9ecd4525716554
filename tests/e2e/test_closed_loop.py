"""The closed loop on real parts: kubelet, vLLM, Prometheus, Helm, and the operator in a pod.

The tests share one engine and run in this order; each brings the loop to where it starts from.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pytest

from demo.constants import Load
from localcluster.controlplane import ControlPlane
from localcluster.node import Node
from tests.support.background_load import BackgroundLoad, conversations, prefill_seconds
from tests.support.stack import CONFIG_MAP, NAMESPACE, RELEASE, WORKLOAD, Stack, closed_loop
from tests.support.vllm_pod import InForce

pytestmark = pytest.mark.timeout(1800)

POLICY = "chat"
INTERVAL = 2
KNOB_TTL = 90
# A returning conversation of the load has at least 1,400 tokens, all evicted under LRU; one whose
# uncached part takes longer than 400 tokens take violates the objective.
THRESHOLD_TOKENS = 400
# One request in five is a turn of a conversation: the 85th percentile of 20 is one of theirs.
QUANTILE = "0.85"
MIN_REQUESTS = 20
PROMPT = list(range(10, 200))
# How long a changed ConfigMap takes to the engine (kubelet syncs every 5 s), on a busy machine.
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


@pytest.fixture(scope="module")
def stack(
    control_plane: ControlPlane, node: Node, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stack]:
    with closed_loop(control_plane, node, tmp_path_factory.mktemp("loop")) as running:
        yield running


@pytest.fixture(scope="module")
def pace(stack: Stack) -> Pace:
    return Pace(prefill_seconds(stack.engine.url, THRESHOLD_TOKENS))


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


def has_recommendation(stack: Stack) -> bool:
    target = stack.status(POLICY).get("recommendation", {}).get("target", {})
    return "xiTokens" in target


def applied(stack: Stack) -> dict[str, Any]:
    """status.applied while no change is under way."""
    status = stack.status(POLICY)
    found: dict[str, Any] = status.get("applied", {})
    return {} if "pending" in status else found


def in_force(stack: Stack) -> bool:
    """Whether the engine has what status says was applied, and status says that it has."""
    wanted = applied(stack)
    if "xiTokens" not in wanted.get("values", {}):
        return False
    shown = stack.engine.in_force()
    expected = InForce("t-lru", wanted["values"]["xiTokens"], wanted["revision"])
    return shown == expected and stack.status(POLICY)["engines"]["acknowledged"] == 1


def stock(stack: Stack) -> bool:
    shown = stack.engine.in_force()
    return shown is not None and shown.policy == "lru" and shown.xi_tokens is None


def ensure_in_force(stack: Stack, pace: Pace) -> None:
    """Bring the loop to where a xi is in force and stays: suspended, and nothing under way."""
    if stack.get("evp", "-n", NAMESPACE)["items"] and frozen(stack):
        return
    stack.apply_policy(policy(POLICY, "Auto", pace))
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


def test_recommend_writes_nothing_but_status_and_events(stack: Stack, pace: Pace) -> None:
    """Proof 1, first half: read from the API server's audit log. The Lease is no policy's."""
    stack.apply_policy(policy(POLICY, "Recommend", pace))
    with BackgroundLoad(stack.engine.url, MIX):
        stack.wait_for("a recommendation", lambda: has_recommendation(stack), pace.patience)
        ticks = stack.ticks(POLICY)
        stack.wait_for("five ticks more", lambda: stack.ticks(POLICY) >= ticks + 5, 60)
    writes = stack.operator_writes()
    written = {(w["objectRef"]["resource"], w["objectRef"].get("subresource", "")) for w in writes}
    assert written == {("evictionpolicies", "status"), ("events", ""), ("leases", "")}
    for write in writes:
        if write["objectRef"]["resource"] == "events":
            involved = write["requestObject"]["involvedObject"]
            assert (involved["kind"], involved["name"]) == ("EvictionPolicy", POLICY)
    assert stack.document() is None
    assert stock(stack)


def test_auto_brings_xi_to_the_running_engine(stack: Stack, pace: Pace) -> None:
    """Proof 1, second half: the same pod, the same process, another xi."""
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
    stack.wait_for("said in status", lambda: _reason(stack, "Ready") == "Conflict", 30)
    stack.cluster.kubectl("delete", "configmap", CONFIG_MAP, "-n", NAMESPACE)
    stack.wait_for("in force again", lambda: in_force(stack), REACH_SECONDS)
    assert stack.identity() == identity


def _reason(stack: Stack, condition: str) -> str:
    conditions = stack.status(POLICY)["conditions"]
    return str(next(each["reason"] for each in conditions if each["type"] == condition))


def test_a_restarted_engine_is_claimed_only_when_it_shows_the_revision(
    stack: Stack, pace: Pace
) -> None:
    """Proof 4: in force again before it is claimed."""
    ensure_in_force(stack, pace)
    uid, restarts = stack.identity()
    wanted = applied(stack)
    stack.kill_engine()
    stack.wait_for("the loss noticed", lambda: not claims(stack), 60)
    early = []

    def claimed() -> bool:
        if not claims(stack):
            return False
        # Looked at after status: what was claimed must be true by now.
        shown = stack.engine.in_force()
        if shown is None or shown.revision != wanted["revision"]:
            early.append(shown)
        return True

    stack.wait_for("claimed again", claimed, 300)
    assert not early
    assert stack.identity() == (uid, restarts + 1)
    assert in_force(stack)


def claims(stack: Stack) -> bool:
    """Whether status says of an engine that it has the values."""
    status = stack.status(POLICY)
    (active,) = (each for each in status["conditions"] if each["type"] == "PolicyActive")
    return bool(status["engines"]["acknowledged"] or active["status"] == "True")


def test_without_the_operator_the_engine_returns_to_stock_lru(stack: Stack, pace: Pace) -> None:
    """Proof 4: it stays away past knobTTL; when it comes back, so does xi."""
    ensure_in_force(stack, pace)
    identity = stack.identity()
    stack.scale_operator(0)
    left = time.monotonic()
    stack.wait_for("stock LRU", lambda: stock(stack), KNOB_TTL + 15)
    # Renewed at half of its life at the latest, it held until then.
    assert time.monotonic() - left > KNOB_TTL / 2 - 15
    assert stack.identity() == identity
    assert stack.engine.healthy()
    stack.scale_operator(1)
    stack.wait_for("in force again", lambda: in_force(stack), REACH_SECONDS)
    assert stack.identity() == identity


def test_a_deleted_policy_returns_the_engine_to_stock_lru(stack: Stack, pace: Pace) -> None:
    """Proof 4: the ConfigMap is collected with its owner, and the optional mount empties."""
    ensure_in_force(stack, pace)
    identity = stack.identity()
    stack.cluster.kubectl("delete", "evp", POLICY, "-n", NAMESPACE, "--timeout=30s")
    stack.wait_for("the document collected", lambda: stack.document() is None, REACH_SECONDS)
    stack.wait_for("stock LRU", lambda: stock(stack), REACH_SECONDS)
    assert stack.engine.in_force() == InForce("lru", None, 0)
    assert stack.identity() == identity


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
    """Proof 5: ten ticks, no change."""
    stack.wait_for("stock LRU", lambda: stock(stack), REACH_SECONDS)
    before = len(stack.operator_writes())
    stack.apply_policy(policy(name, "Auto", pace, factor * pace.threshold))
    with BackgroundLoad(stack.engine.url, load):
        stack.wait_for(f"regime {regime}", lambda: _regime(stack, name) == regime, pace.patience)
        ticks = stack.ticks(name)
        stack.wait_for("ten ticks", lambda: stack.ticks(name) >= ticks + 10, 120)
        assert _regime(stack, name) == regime
    writes = stack.operator_writes()[before:]
    assert "configmaps" not in {write["objectRef"]["resource"] for write in writes}
    assert stack.document() is None
    reasons = {each["reason"] for each in stack.status(name).get("decisions", [])}
    assert "Intended" not in reasons
    assert stock(stack)
    stack.cluster.kubectl("delete", "evp", name, "-n", NAMESPACE)


def _regime(stack: Stack, name: str) -> str:
    return str(stack.status(name).get("regime", {}).get("name", ""))


def test_uninstalling_leaves_nothing_stuck(stack: Stack) -> None:
    """Namespaces and policies go without the operator: it holds no finalizer."""
    stack.apply_policy(policy("left-behind", "Observe", Pace(1.0)))
    stack.wait_for("a status", lambda: stack.status("left-behind"), 30)
    stack.uninstall_operator()
    stack.cluster.kubectl("delete", "evp", "left-behind", "-n", NAMESPACE, "--timeout=30s")
    stack.cluster.kubectl("delete", "namespace", RELEASE, "--timeout=90s")
