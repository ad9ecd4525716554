"""The session's cluster, for every test in this directory."""

from tests.support.cluster import control_plane

__all__ = ["control_plane"]
