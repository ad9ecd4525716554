"""evictune: a Kubernetes operator that tunes KV-cache eviction in vLLM against a TTFT target."""
