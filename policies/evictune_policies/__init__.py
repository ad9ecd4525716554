"""KV-cache eviction policies: the vLLM plugin (engine)."""
