"""`helm upgrade` from chart 0.1.0: policies, values in force and engines stay as they are."""

from __future__ import annotations

from localcluster.paths import SOURCE_ROOT
from tests.support.installation import CHART, IMAGE
from tests.support.upgrading import Seen, Upgrade

DEFINITION = SOURCE_ROOT / "charts/evictune/files/crd.yaml"


def test_what_is_in_force_outlives_an_upgrade(upgraded: Upgrade) -> None:
    assert upgraded.release.chart() == CHART
    upgraded.await_followed()
    assert upgraded.image() == IMAGE
    assert Seen.now(upgraded.serving) == upgraded.before
    assert upgraded.serving.in_force()


def test_the_definition_is_the_new_one(upgraded: Upgrade) -> None:
    difference = f"kubectl diff -f {DEFINITION}"
    assert upgraded.release.shell.run(difference) == ""
