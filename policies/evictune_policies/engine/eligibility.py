"""Which vLLM can take its memory fraction from the knob document, by how it is started."""

from collections.abc import Mapping
from typing import Any


def memory_ineligibility(
    args: Any, usage: Any, headless: bool, environ: Mapping[str, str]
) -> tuple[str, str]:
    """Why this start must keep the manifest's fraction.

    Args:
        args: vLLM's ``EngineArgs``.
        usage: vLLM's ``UsageContext``, or None.
        headless: Whether the engine runs without an API server.
        environ: For vLLM's own variables.

    Returns:
        A CamelCase reason and a sentence; both empty when it need not.
    """
    if getattr(usage, "name", None) != "OPENAI_API_SERVER":
        return "NotAnApiServer", "vLLM is not run as a server"
    if headless or _is_of_several_pods(args):
        return (
            "EngineOfSeveralPods",
            "ranks of this engine are served elsewhere: one pod alone can neither change its "
            "fraction nor restart",
        )
    if args._api_process_count > 1 or args._api_process_rank != 0:
        return (
            "SeveralApiServers",
            "requests in flight cannot be counted over several API servers: run vLLM with "
            "--api-server-count 1, and without its Rust front end",
        )
    if args.kv_cache_memory_bytes is not None or environ.get("VLLM_CPU_KVCACHE_SPACE"):
        return (
            "KvCacheMemoryBytesSet",
            "--kv-cache-memory-bytes (on CPUs also VLLM_CPU_KVCACHE_SPACE) overrides the memory "
            "fraction: remove it",
        )
    if args.num_gpu_blocks_override is not None:
        return (
            "NumGpuBlocksOverrideSet",
            "--num-gpu-blocks-override sets the number of blocks whatever the memory: remove it",
        )
    return "", ""


def _is_of_several_pods(args: Any) -> bool:
    local = args.data_parallel_size_local
    return (
        args.nnodes > 1
        or local not in (None, args.data_parallel_size)
        or args.data_parallel_rank is not None
        or args.data_parallel_start_rank is not None
        or args.data_parallel_hybrid_lb
        or args.data_parallel_external_lb
        or args.data_parallel_multi_port_external_lb
        or args.data_parallel_backend == "ray"
        or args.distributed_executor_backend == "ray"
    )
