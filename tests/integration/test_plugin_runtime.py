"""The plugin beside an engine core it does not like, or that has trouble of its own.

The core here has the attributes of vLLM's that the plugin touches; its cache manager is vLLM's.
"""

from __future__ import annotations

import json
import queue
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from evictune_policies import engine as plugin
from evictune_policies.engine import internals, runtime
from evictune_policies.engine.metrics import Report, SettingError
from evictune_policies.engine.tlru import TailOptimizedLRU
from vllm.utils.hashing import sha256
from vllm.v1.core.block_pool import BlockPool
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import FreeKVCacheBlockQueue, init_none_hash
from vllm.v1.engine import EngineCoreRequestType
from vllm.v1.engine.core import DPEngineCoreProc, EngineCoreProc
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    SlidingWindowSpec,
)

from tests.support.eviction_walk import Walk, Watched
from tests.support.vllm_parts import cache_manager

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC).timestamp()


def core_of(manager: KVCacheManager) -> Any:
    return SimpleNamespace(
        scheduler=SimpleNamespace(kv_cache_manager=manager),
        step_fn=lambda: "stepped",
        input_queue=queue.Queue(),
        engine_index=0,
        _idle_state_callbacks=[],
    )


@pytest.fixture(autouse=True)
def _reports_stay_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = partial(runtime.ReportDirectory, parent=tmp_path)
    monkeypatch.setattr(runtime, "ReportDirectory", own)


def runtime_of(core: Any, directory: Path, clock: Callable[[], float] = lambda: NOW) -> Any:
    environ = {
        "EVICTUNE_KNOBS_DIR": str(directory),
        "EVICTUNE_POD_NAME": "chat-0",
        "EVICTUNE_METRICS_ADDRESS": "192.0.2.1:9410",  # nobody's: cannot be bound
    }
    return runtime.EngineRuntime(core, environ, clock)


def put(directory: Path, xi: int, revision: int = 7) -> None:
    document = {
        "schema": "evictune.io/knobs/v1",
        "revision": revision,
        "expires": "2026-11-29T13:00:00Z",
        "default": {"policy": "t-lru", "xiTokens": xi, "qHatTokens": 60},
    }
    new = directory / "new"
    new.write_text(json.dumps(document))
    new.replace(directory / "knobs.json")


def manager_with(*specs: Any, enable_caching: bool = True) -> KVCacheManager:
    init_none_hash(sha256)
    groups = [KVCacheGroupSpec([f"layer.{n}"], spec) for n, spec in enumerate(specs)]
    return KVCacheManager(
        KVCacheConfig(num_blocks=20, kv_cache_tensors=[], kv_cache_groups=groups),
        max_model_len=256,
        scheduler_block_size=16,
        hash_block_size=16,
        enable_caching=enable_caching,
    )


FULL = FullAttentionSpec(block_size=16, num_kv_heads=1, head_size=1, dtype=torch.float32)
WINDOW = SlidingWindowSpec(
    block_size=16, num_kv_heads=1, head_size=1, dtype=torch.float32, sliding_window=64
)


@pytest.mark.parametrize(
    ("manager", "reason"),
    [
        (lambda: manager_with(FULL, enable_caching=False), "PrefixCachingDisabled"),
        (lambda: manager_with(FULL, WINDOW), "NotSingleFullAttentionGroup"),
        (lambda: manager_with(WINDOW), "NotSingleFullAttentionGroup"),
    ],
    ids=["no prefix caching", "hybrid", "sliding window"],
)
def test_ineligible_engine_stays_stock_and_says_why(
    manager: Callable[[], KVCacheManager], reason: str, tmp_path: Path
) -> None:
    core = core_of(manager())
    step = core.step_fn
    put(tmp_path, 512)
    ours = runtime_of(core, tmp_path)
    ours.tick()
    assert ours.report() == Report("0", "lru", None, None, revision=0, ineligible=reason)
    pool = core.scheduler.kv_cache_manager.block_pool
    assert type(pool.free_block_queue) is FreeKVCacheBlockQueue
    assert "free_blocks" not in vars(pool)
    assert core.step_fn is step


def _other_free_blocks(self: Any, ordered_blocks: Any) -> None:
    raise NotImplementedError


CHANGES: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "free_blocks works differently": lambda patch: patch.setattr(
        BlockPool, "free_blocks", _other_free_blocks
    ),
    "a method takes another parameter": lambda patch: patch.setattr(
        KVCacheManager, "free", lambda self, request, why: None
    ),
    "a method of the queue is new": lambda patch: patch.setattr(
        FreeKVCacheBlockQueue, "insert_after", lambda self, block: None, raising=False
    ),
    "a method of the queue is gone": lambda patch: patch.delattr(
        FreeKVCacheBlockQueue, "prepend_n"
    ),
    "no wake-up of an idle engine": lambda patch: patch.delattr(EngineCoreRequestType, "WAKEUP"),
}


def test_the_installed_vllm_is_what_the_plugin_knows() -> None:
    assert internals.differences() == []


@pytest.mark.parametrize("change", CHANGES)
def test_unknown_internals_are_left_alone(
    change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    core = core_of(cache_manager(20))
    stock_queue = core.scheduler.kv_cache_manager.block_pool.free_block_queue
    if change == "no wake-up of an idle engine":
        monkeypatch.setattr(internals, "EngineCoreRequestType", SimpleNamespace())
    else:
        CHANGES[change](monkeypatch)
    ours = runtime_of(core, tmp_path)
    assert ours.report().ineligible == "UnknownEngineInternals"
    assert "Staying with stock LRU: UnknownEngineInternals" in caplog.text
    assert core.scheduler.kv_cache_manager.block_pool.free_block_queue is stock_queue


@pytest.mark.parametrize("attribute", ["input_queue", "_idle_state_callbacks", "step_fn"])
def test_an_engine_core_without_what_the_plugin_needs_is_left_alone(
    attribute: str, tmp_path: Path
) -> None:
    core = core_of(cache_manager(20))
    delattr(core, attribute)
    assert runtime_of(core, tmp_path).report().ineligible == "UnknownEngineInternals"


def test_a_change_waits_for_the_scheduler_and_is_acknowledged_after(tmp_path: Path) -> None:
    core = core_of(cache_manager(20))
    ours = runtime_of(core, tmp_path)
    put(tmp_path, 512)
    ours.tick()
    assert ours.report().revision == 0, "acknowledged before the scheduler's thread applied it"
    assert core.input_queue.get_nowait() == (EngineCoreRequestType.WAKEUP, None)
    assert core.step_fn() == "stepped"
    assert (ours.report().revision, ours.report().xi_tokens) == (7, 512)
    (callback,) = core._idle_state_callbacks
    callback(core)  # too late: nothing is left to do
    assert ours.report().changes == 1


def test_an_idle_scheduler_applies_in_its_idle_callback(tmp_path: Path) -> None:
    core = core_of(cache_manager(20))
    ours = runtime_of(core, tmp_path)
    put(tmp_path, 512)
    ours.tick()
    core._idle_state_callbacks.pop()(core)
    assert ours.report().revision == 7


def test_same_values_under_a_new_revision_sort_nothing(tmp_path: Path) -> None:
    core = core_of(cache_manager(20))
    ours = runtime_of(core, tmp_path)
    for revision in (7, 8):
        put(tmp_path, 512, revision)
        ours.tick()
        core.step_fn()
    assert (ours.report().revision, ours.report().changes) == (8, 1)


def test_of_two_changes_between_steps_the_last_counts(tmp_path: Path) -> None:
    core = core_of(cache_manager(20))
    ours = runtime_of(core, tmp_path)
    for revision, xi in ((7, 512), (8, 64)):
        put(tmp_path, xi, revision)
        ours.tick()
    core.step_fn()
    assert (ours.report().revision, ours.report().xi_tokens, ours.report().changes) == (8, 64, 1)


def test_expired_document_returns_a_loaded_engine_to_stock(tmp_path: Path) -> None:
    now = NOW
    core = core_of(cache_manager(20))
    ours = runtime_of(core, tmp_path, clock=lambda: now)
    put(tmp_path, 512)
    ours.tick()
    core.step_fn()
    now += 3600
    ours.tick()
    core.step_fn()
    assert (ours.report().policy, ours.report().revision) == ("lru", 0)


def test_a_failing_sort_leaves_engine_and_order_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    manager = cache_manager(60, block_size=4, max_model_len=120)
    core = core_of(manager)
    ours = runtime_of(core, tmp_path)

    def broken(self: TailOptimizedLRU) -> None:
        raise RuntimeError("a bug of ours")

    monkeypatch.setattr(TailOptimizedLRU, "_sort", broken)
    put(tmp_path, 20)
    ours.tick()
    assert core.step_fn() == "stepped"
    assert (ours.report().policy, ours.report().revision) == ("lru", 0)
    assert ours.report().ineligible == "PolicyFailed"
    assert "a bug of ours" in caplog.text
    stock = Walk(Watched(cache_manager(60, block_size=4, max_model_len=120)), seed=1)
    same = Walk(Watched(manager), seed=1)
    stock.run(200)
    same.run(200)
    assert same.trace == stock.trace


def test_hooking_twice_hooks_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for engine_class in (EngineCoreProc, DPEngineCoreProc):
        monkeypatch.setattr(engine_class, "run_busy_loop", engine_class.run_busy_loop)
    plugin.register()
    hooked = EngineCoreProc.run_busy_loop, DPEngineCoreProc.run_busy_loop
    plugin.register()
    assert (EngineCoreProc.run_busy_loop, DPEngineCoreProc.run_busy_loop) == hooked


@pytest.mark.parametrize("error", [RuntimeError("a bug of ours"), SettingError("ADDRESS is bad")])
def test_engine_runs_whatever_the_plugin_raises(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(core: Any) -> None:
        raise error

    monkeypatch.setattr(runtime, "EngineRuntime", broken)
    run = runtime._with_runtime(lambda core: f"ran {core}")
    assert run("the engine") == "ran the engine"
    assert str(error) in caplog.text
    assert "stock LRU" in caplog.text


def test_a_plugin_that_cannot_be_imported_is_told_and_no_more(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "evictune_policies.engine.runtime", None)
    plugin.register()
    assert "cannot be loaded" in caplog.text
