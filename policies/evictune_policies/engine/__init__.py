"""A vLLM general plugin: which cached KV blocks are evicted first, and how many there are.

vLLM calls :func:`register` in every process that loads general plugins. See
``docs/reference/plugin.md``.
"""

import logging


def register() -> None:
    """Hook the plugin into vLLM; on any trouble leave vLLM as it is and say so in the log."""
    try:
        from evictune_policies.engine.runtime import hook

        hook()
    except Exception:
        # Whatever the plugin does not expect of this vLLM or this installation, the engine starts.
        logging.getLogger("vllm.evictune").exception(
            "The evictune plugin cannot be loaded; staying with stock LRU"
        )
    try:
        from evictune_policies.engine import start

        start.hook()
    except Exception:  # the same
        logging.getLogger("vllm.evictune").exception(
            "The memory fraction stays the manifest's: the evictune plugin cannot see to it"
        )
