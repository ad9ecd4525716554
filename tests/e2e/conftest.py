"""The session's cluster and its node, for every test in this directory."""

from tests.support.cluster import control_plane, node

__all__ = ["control_plane", "node"]
