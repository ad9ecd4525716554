"""The cluster of the tests in this directory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from localcluster.controlplane import ControlPlane


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    """A control plane with controller manager and scheduler; its directory goes at the end."""
    with ControlPlane() as running:
        yield running
