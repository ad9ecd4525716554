"""`evictune suspend`: values in force stay and are renewed, nothing is decided, until `resume`."""

from __future__ import annotations

import time

from tests.support.installation import wait_for
from tests.support.serving import POLICY, Serving


def test_suspended_it_renews_and_decides_nothing(serving: Serving) -> None:
    serving.bring_into_force(behavior={"knobTTL": "8s"})
    key = f"{serving.namespace}/{POLICY}"
    told = serving.shell.run(f"evictune suspend {key}")
    assert f"{key} suspended" in told
    assert "stays in force and is renewed" in told

    before = serving.document()
    assert before is not None
    decided = serving.reasons().count("Intended")
    serving.becomes("slow")
    wait_for("another value wanted", lambda: _wants_another(serving))
    time.sleep(7)  # the readings stay for a window, which a decision waits for, and some ticks
    renewed = wait_for("the document renewed", lambda: _later(serving, before["expires"]), 20)
    assert renewed["revision"] == before["revision"]
    assert renewed["default"] == before["default"]
    assert serving.condition("SLOMet")[0] == "False"
    assert serving.condition("Ready")[:2] == ("True", "Suspended")
    assert serving.reasons().count("Intended") == decided
    assert serving.in_force()

    assert "Decisions are taken again" in serving.shell.run(f"evictune resume {key}")
    wait_for("a decision", lambda: serving.reasons().count("Intended") > decided)


def _wants_another(serving: Serving) -> bool:
    status = serving.status()
    wanted = status.get("recommendation", {}).get("target")
    return wanted is not None and bool(wanted != status["applied"]["values"])


def _later(serving: Serving, expires: str) -> dict[str, object] | None:
    document = serving.document()
    return document if document is not None and document["expires"] > expires else None
