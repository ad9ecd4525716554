"""Two who want the same: the older policy wins, a person's edit of the document is not fought."""

from __future__ import annotations

import json
import time

from tests.support.installation import wait_for
from tests.support.serving import CONFIG_MAP, POLICY, Serving, policy

YOUNGER = "a-younger"


def test_of_two_policies_the_older_is_followed(serving: Serving) -> None:
    serving.bring_into_force()
    serving.apply(policy(YOUNGER))
    wait_for("the conflict told", lambda: serving.condition("Ready", YOUNGER)[0])
    status, reason, message = serving.condition("Ready", YOUNGER)
    assert (status, reason) == ("False", "Conflict")
    assert f"Policy {POLICY} " in message
    assert "Conflict" in serving.kubectl("get evp -o wide")
    assert _owner(serving) == POLICY
    serving.kubectl(f"delete evp {POLICY} --timeout=30s")
    wait_for("the younger followed", lambda: serving.condition("Ready", YOUNGER)[0] == "True")
    wait_for("its document", lambda: _owner(serving) == YOUNGER)


def _owner(serving: Serving) -> str:
    """The policy that owns the knob document; empty while there is none."""
    found = serving.objects.find("configmap", CONFIG_MAP)
    owners = found["metadata"]["ownerReferences"] if found else []
    return ",".join(owner["name"] for owner in owners)


def test_a_persons_document_is_named_and_left_alone(serving: Serving) -> None:
    serving.bring_into_force()
    document = serving.document()
    assert document is not None
    mine = {**document, "revision": document["revision"] + 1}
    mine["default"] = {"policy": "t-lru", "xiTokens": 777, "qHatTokens": 7}
    data = json.dumps({"data": {"knobs.json": json.dumps(mine)}})
    serving.kubectl(f"patch configmap {CONFIG_MAP} --type=merge -p '{data}'")
    wait_for("the engine follows", lambda: _xi(serving) == 777, 30)
    wait_for("the conflict told", lambda: serving.condition("Ready")[1] == "Conflict")
    assert "kubectl-patch" in serving.condition("Ready")[2]
    time.sleep(3)  # of three ticks none writes
    assert serving.document() == mine
    serving.kubectl(f"delete configmap {CONFIG_MAP}")
    wait_for("followed again", lambda: serving.condition("Ready")[0] == "True")
    wait_for("a value of the policy's", serving.in_force)
    assert _xi(serving) != 777


def _xi(serving: Serving) -> int | None:
    (engine,) = serving.engines()
    shown = engine.in_force()
    return shown.xi_tokens if shown else None
