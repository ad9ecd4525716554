"""Shared fixtures: one control plane, and one real node, for the whole test session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from localcluster.controlplane import ControlPlane
from localcluster.node import Node


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    """A control plane with controller manager and scheduler; its directory goes at the end."""
    with ControlPlane() as running:
        yield running


@pytest.fixture(scope="session")
def node(control_plane: ControlPlane) -> Iterator[Node]:
    """A real node of that control plane (root). Pods run images loaded by `node.load_image`."""
    with Node(control_plane) as running:
        yield running
