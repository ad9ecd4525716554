"""KF-2: a finalizer whose operator is gone blocks a namespace's deletion. Field case 43.

The operator adds none, whatever it does, and no owner reference blocks a deletion. With a real API
server, namespace deleted with the operator away, operator and policy deleted together:
tests/integration/test_operator_away.py and test_operator_lifecycle.py.
"""

from __future__ import annotations

import json
from pathlib import Path

import evictune
import kopf
import pytest

from tests.support.loop_case import (
    CONFIG_MAP,
    DEPLOYMENT,
    POLICIES,
    LoopCase,
    play,
    policy_body,
)


def test_a_whole_life_of_a_policy_adds_no_finalizer() -> None:
    case = LoopCase()

    async def scenario(case: LoopCase) -> None:
        await case.run(1200)
        assert "Kept" in case.told
        assert "finalizers" not in json.dumps(case.api.requests)
        assert all("finalizers" not in body["metadata"] for body in case.api.objects.values())
        (owner,) = case.api.objects[CONFIG_MAP]["metadata"]["ownerReferences"]
        assert (owner["controller"], owner["blockOwnerDeletion"]) == (False, False)
        assert owner["uid"] == case.policy["metadata"]["uid"]

    play(scenario, case)


@pytest.mark.parametrize("gone", ["target", "source", "neither"])
def test_a_policy_on_its_way_out_is_let_go_without_a_write(gone: str) -> None:
    """Somebody else's finalizer holds it: ours is not to keep it, nor to act for it."""
    case = LoopCase()

    async def scenario(case: LoopCase) -> None:
        await case.run(600)
        body = case.policy
        body["metadata"] |= {
            "deletionTimestamp": "2026-11-30T00:00:00Z",
            "finalizers": ["example.com/theirs"],
        }
        case.api.put(f"{POLICIES}/owl-chat", body)
        if gone == "target":
            del case.api.objects[DEPLOYMENT]
        if gone == "source":
            case.pages = lambda name, port: ""  # type: ignore[method-assign]
        written = len(case.api.requests)
        assert await case.tick() is None
        assert len(case.api.requests) == written

    play(scenario, case)


def test_a_policy_made_anew_under_its_name_begins_with_what_is_in_force() -> None:
    """Its predecessor's document is taken over, or it is collected: no value comes from nowhere."""
    case = LoopCase()

    async def scenario(case: LoopCase) -> None:
        await case.run(1200)
        xi = case.xi
        del case.api.objects[f"{POLICIES}/owl-chat"]
        assert await case.tick() is None
        case.put_policy(policy_body(uid="0a1b2c3d-2"))
        await case.tick()
        assert case.status["applied"]["values"]["xiTokens"] == xi
        (owner,) = case.api.objects[CONFIG_MAP]["metadata"]["ownerReferences"]
        assert owner["uid"] == "0a1b2c3d-2"
        assert "quarantine" not in case.status or case.status["quarantine"] == []

    play(scenario, case)


def test_two_policies_that_are_swapped_hand_the_target_over() -> None:
    """The older one goes: the other takes over, document and all; never both at once."""
    case = LoopCase()

    async def scenario(case: LoopCase) -> None:
        await case.run(1200)
        second = policy_body("owl-new", uid="0a1b2c3d-9")
        second["metadata"]["creationTimestamp"] = "2026-11-20T00:00:00Z"
        case.put_policy(second)
        await case.tick("owl-new")
        status = case.api.objects[f"{POLICIES}/owl-new"]["status"]
        ready = next(each for each in status["conditions"] if each["type"] == "Ready")
        assert (ready["status"], ready["reason"]) == ("False", "Conflict")
        assert "owl-chat" in ready["message"]
        del case.api.objects[f"{POLICIES}/owl-chat"]
        case.index.remove(("serve-a", "owl-chat"))
        await case.tick("owl-new")
        (owner,) = case.api.objects[CONFIG_MAP]["metadata"]["ownerReferences"]
        assert owner["uid"] == "0a1b2c3d-9"
        taken = case.api.objects[f"{POLICIES}/owl-new"]["status"]["applied"]["values"]
        assert taken["xiTokens"] == case.xi

    play(scenario, case)


def test_kopf_is_given_nothing_that_brings_finalizers_in() -> None:
    """Timers, daemons and delete handlers would; low-level event handlers do not."""
    spawning = {"timer", "daemon"}
    source = "\n".join(path.read_text("utf-8") for path in sorted(_operator().rglob("*.py")))
    for name in (*spawning, "delete", "create", "update", "resume", "field"):
        assert f"kopf.on.{name}" not in source
    assert "kopf.on.event" in source
    assert hasattr(kopf.on, "timer")


def _operator() -> Path:
    return Path(evictune.__file__).parent
