"""What the plugin knows of vLLM's internals, and checks before it touches them.

Checked against vLLM 0.32. On any difference the engine is left alone.
"""

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Any

from vllm.v1.core.block_pool import BlockPool
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import FreeKVCacheBlockQueue, KVCacheBlock
from vllm.v1.core.single_type_kv_cache_manager import FullAttentionManager
from vllm.v1.engine import EngineCoreRequestType
from vllm.v1.request import Request

_BLOCK_SLOTS = {
    "block_id", "ref_cnt", "pool", "_block_hash", "_block_hash_num_tokens",
    "prev_free_block", "next_free_block", "is_null",
}  # fmt: skip
# All of them: one that is not known here would go round the regions.
_QUEUE_METHODS = {
    "popleft": ["self"],
    "popleft_n": ["self", "n"],
    "remove": ["self", "block"],
    "append": ["self", "block"],
    "prepend_n": ["self", "blocks"],
    "append_n": ["self", "blocks"],
    "get_all_free_blocks": ["self"],
    "iter_blocks_after": ["self", "cursor"],
}
_METHODS: list[tuple[type, str, list[str]]] = [
    (BlockPool, "get_new_blocks", ["self", "num_blocks"]),
    (BlockPool, "touch", ["self", "blocks"]),
    (BlockPool, "free_blocks", ["self", "ordered_blocks"]),
    (BlockPool, "evict_blocks", ["self", "block_ids"]),
    (BlockPool, "reset_prefix_cache", ["self"]),
    (KVCacheManager, "free", ["self", "request"]),
    (KVCacheManager, "pop_blocks_for_free", ["self", "request"]),
    (Request, "is_finished", ["self"]),
]
# The one method that is replaced rather than wrapped: its source, without comments.
FREE_BLOCKS_FINGERPRINTS = frozenset({"734fa41937d6a9a7"})


def differences() -> list[str]:
    """Say in what the installed vLLM's classes differ from what the plugin knows."""
    return list(_differences())


def ineligibility(core: Any) -> tuple[str, str]:
    """Why this engine must stay with stock LRU.

    Args:
        core: An ``EngineCore`` that is ready to run.

    Returns:
        A CamelCase reason and a sentence; both empty when the engine is eligible.
    """
    unknown = [*differences(), *_instance_differences(core)]
    if unknown:
        return "UnknownEngineInternals", "; ".join(unknown)
    manager = core.scheduler.kv_cache_manager
    if not manager.enable_caching:
        return "PrefixCachingDisabled", "the engine runs without prefix caching"
    groups = [type(group).__name__ for group in manager.coordinator.single_type_managers]
    if groups != [FullAttentionManager.__name__]:
        return "NotSingleFullAttentionGroup", f"KV cache groups: {', '.join(groups) or 'none'}"
    return "", ""


def _differences() -> Iterator[str]:
    slots = set(getattr(KVCacheBlock, "__slots__", ()))
    if slots != _BLOCK_SLOTS:
        yield f"KVCacheBlock has the fields {sorted(slots)}"
    methods = {name for name, _ in inspect.getmembers(FreeKVCacheBlockQueue, inspect.isfunction)}
    if methods - {"__init__"} != set(_QUEUE_METHODS):
        yield f"FreeKVCacheBlockQueue has the methods {sorted(methods)}"
    queue = [(FreeKVCacheBlockQueue, name, names) for name, names in _QUEUE_METHODS.items()]
    for owner, name, parameters in [*queue, *_METHODS]:
        found = _parameters(getattr(owner, name, None))
        if found != parameters:
            yield f"{owner.__name__}.{name} takes {found}"
    if not isinstance(getattr(Request, "num_tokens", None), property):
        yield "Request.num_tokens is not a property"
    if fingerprint(BlockPool.free_blocks) not in FREE_BLOCKS_FINGERPRINTS:
        yield "BlockPool.free_blocks works in a way the plugin does not know"


def _instance_differences(core: Any) -> Iterator[str]:
    """What only a running engine shows."""
    for path in (
        "step_fn", "input_queue", "engine_index", "_idle_state_callbacks",
        "scheduler.kv_cache_manager.coordinator.single_type_managers",
        "scheduler.kv_cache_manager.block_pool.free_block_queue",
    ):  # fmt: skip
        value = core
        for name in path.split("."):
            value = getattr(value, name, None)
        if value is None:
            yield f"EngineCore.{path} is missing"
            return
    if not hasattr(EngineCoreRequestType, "WAKEUP"):
        yield "EngineCoreRequestType.WAKEUP is missing"
    manager = core.scheduler.kv_cache_manager
    if type(manager) is not KVCacheManager or type(manager.block_pool) is not BlockPool:
        names = type(manager).__name__, type(manager.block_pool).__name__
        yield f"the scheduler works with {' and '.join(names)}"
    elif type(manager.block_pool.free_block_queue) is not FreeKVCacheBlockQueue:
        yield "something else has replaced the free queue"
    elif manager.block_pool.get_num_free_blocks() != manager.block_pool.num_gpu_blocks - 1:
        yield "blocks are in use before the engine runs"


def _parameters(function: object) -> list[str] | None:
    return list(inspect.signature(function).parameters) if callable(function) else None


def fingerprint(function: Callable[..., Any]) -> str:
    """Hash what a function does: its source without comments, docstring and layout."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, SyntaxError) as error:
        return f"source not readable: {error}"
    (definition,) = tree.body
    assert isinstance(definition, ast.FunctionDef)
    if ast.get_docstring(definition) is not None:
        del definition.body[0]
    return sha256(ast.unparse(definition).encode()).hexdigest()[:16]
