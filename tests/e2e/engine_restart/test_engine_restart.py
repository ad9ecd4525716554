"""The engine dies: what is in force is claimed of the new process only when that shows it."""

from __future__ import annotations

import pytest

from tests.support.loop import POLICY, Pace, applied, ensure_in_force, in_force
from tests.support.stack import Stack

pytestmark = pytest.mark.timeout(1800)


def test_a_restarted_engine_is_claimed_only_when_it_shows_the_revision(
    stack: Stack, pace: Pace
) -> None:
    ensure_in_force(stack, pace)
    uid, restarts = stack.identity()
    wanted = applied(stack)
    stack.kill(stack.pod())
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
