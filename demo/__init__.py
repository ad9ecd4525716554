"""The demonstration: a real vLLM, a real control plane, the operator, and a load on which it shows.

`python -m demo` plays the same requests in the same order twice, with stock LRU and with the
closed loop, tells every step as it happens and compares. See docs/explanation/demo.md.
"""
