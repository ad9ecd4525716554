"""Observing: the API server's pods, the engines' metrics and the plugin's own word, as readings.

Faults of the outside world become Unknown readings with a reason; they never become zeros.
"""

from evictune.observe.observer import Observer
from evictune.observe.target import ApiClusterReader, ClusterReader, EnginePod, Target

__all__ = ["ApiClusterReader", "ClusterReader", "EnginePod", "Observer", "Target"]
