"""The vocabulary that every other part shares: the resource, readings, decisions, reasons.

Plain frozen dataclasses. Nothing here does input or output or reads a clock.
"""
