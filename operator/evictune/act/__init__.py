"""Carrying out decisions: status first, then the knob document, then Events.

See docs/explanation/write-protocol.md for the protocol, and for what happens when the operator
dies between two steps of it.
"""
