"""Carrying out decisions: status first, then the knob document, then Events.

See docs/write-protocol.md for the protocol and what happens when the operator dies between two
steps of it.
"""
