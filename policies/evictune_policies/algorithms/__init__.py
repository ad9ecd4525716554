"""KV-cache eviction policies: one small file each, the same few operations (`operations`).

Needs NumPy alone. `catalog` lists the policies by name.
"""
