"""`helm rollback` to chart 0.1.0: the same policies are followed by the operator of before."""

from __future__ import annotations

from tests.support.installation import GUIDE
from tests.support.upgrading import OLD_IMAGE, Seen, Upgrade
from tests.support.walkthrough import steps


def test_what_is_in_force_outlives_a_rollback(upgraded: Upgrade) -> None:
    rollback, suspend = steps(GUIDE, "Roll back")
    shell = upgraded.release.shell
    told = shell.run(suspend.text)
    assert "has been upgraded" in told
    upgraded.await_followed()
    assert upgraded.serving.condition("Ready")[1] == "FleetSwitch"
    told = shell.run(rollback.text)
    assert "Rollback was a success" in told
    assert upgraded.release.chart() == "evictune-0.1.0"
    upgraded.await_followed()
    assert upgraded.image() == OLD_IMAGE
    assert upgraded.serving.condition("Ready")[1] == "Ready"
    assert Seen.now(upgraded.serving) == upgraded.before
    assert upgraded.serving.in_force()
