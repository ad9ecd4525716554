"""The judgement: pure functions from readings to decisions. No input or output, no clock."""

from evictune.decide.engine import decide

__all__ = ["decide"]
