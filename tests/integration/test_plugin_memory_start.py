"""The plugin around vLLM's own EngineArgs: what a start takes, and which starts it leaves alone."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from evictune_policies import engine as plugin
from evictune_policies.engine import start
from evictune_policies.engine.eligibility import memory_ineligibility
from evictune_policies.engine.memory import Attempt, Record
from evictune_policies.engine.memory_series import BEGUN, Begun, families_in
from evictune_policies.engine.state import StateFolder
from evictune_policies.engine.traffic import Traffic
from fastapi import FastAPI
from vllm.engine.arg_utils import AsyncEngineArgs, EngineArgs
from vllm.usage.usage_lib import UsageContext
from vllm.utils import system_utils
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError

from demo.model import cached_model
from tests.support.engine_process import SMALL

SERVER = UsageContext.OPENAI_API_SERVER
MANIFEST = 0.9


def arguments(**changes: Any) -> EngineArgs:
    return AsyncEngineArgs(
        model=str(cached_model(SMALL)), gpu_memory_utilization=MANIFEST, **changes
    )


INELIGIBLE: dict[str, tuple[dict[str, Any], str]] = {
    "bytes": ({"kv_cache_memory_bytes": 1 << 30}, "KvCacheMemoryBytesSet"),
    "blocks": ({"num_gpu_blocks_override": 100}, "NumGpuBlocksOverrideSet"),
    "two nodes": ({"nnodes": 2}, "EngineOfSeveralPods"),
    "ranks elsewhere": (
        {"data_parallel_size": 4, "data_parallel_size_local": 2}, "EngineOfSeveralPods",
    ),
    "one rank of several": ({"data_parallel_rank": 1}, "EngineOfSeveralPods"),
    "hybrid load balancing": ({"data_parallel_hybrid_lb": True}, "EngineOfSeveralPods"),
    "Ray": ({"distributed_executor_backend": "ray"}, "EngineOfSeveralPods"),
    "data parallel by Ray": ({"data_parallel_backend": "ray"}, "EngineOfSeveralPods"),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "reason"), INELIGIBLE.values(), ids=INELIGIBLE)
def test_not_eligible_with_the_reason(changes: dict[str, Any], reason: str) -> None:
    found, message = memory_ineligibility(arguments(**changes), SERVER, False, {})
    assert found == reason
    assert message


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"enable_prefix_caching": False},
        {"data_parallel_size": 2, "data_parallel_size_local": 2},
        {"tensor_parallel_size": 4},
        {"shutdown_timeout": 30},
    ],
)
def test_eligible(changes: dict[str, Any]) -> None:
    assert memory_ineligibility(arguments(**changes), SERVER, False, {}) == ("", "")


def test_what_is_not_in_the_arguments_makes_it_ineligible_too() -> None:
    args = arguments()
    space = {"VLLM_CPU_KVCACHE_SPACE": "4"}
    assert memory_ineligibility(args, SERVER, False, space)[0] == "KvCacheMemoryBytesSet"
    assert memory_ineligibility(args, SERVER, True, {})[0] == "EngineOfSeveralPods"
    for usage in (None, UsageContext.LLM_CLASS, UsageContext.OPENAI_BATCH_RUNNER):
        assert memory_ineligibility(args, usage, False, {})[0] == "NotAnApiServer"
    args._api_process_count = 2
    assert memory_ineligibility(args, SERVER, False, {})[0] == "SeveralApiServers"
    args._api_process_count, args._api_process_rank = 1, -1  # the Rust front end's
    assert memory_ineligibility(args, SERVER, False, {})[0] == "SeveralApiServers"


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pod's, with an empty state folder; what a start patches is put back."""
    state = tmp_path / "state"
    state.mkdir()
    for name, value in {
        "EVICTUNE_KNOBS_DIR": str(tmp_path),
        "EVICTUNE_POD_NAME": "chat-0",
        "EVICTUNE_STATE_DIR": str(state),
        BEGUN: "",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(AsyncLLM, "check_health", AsyncLLM.check_health)
    monkeypatch.setattr(FastAPI, "__call__", FastAPI.__call__)
    return state


def put(directory: Path, fraction: Any, revision: int = 7) -> None:
    document = {
        "schema": "evictune.io/knobs/v1",
        "revision": revision,
        "expires": "2100-01-01T00:00:00Z",
        "default": {"policy": "lru", "gpuMemoryUtilization": fraction},
    }
    (directory / "knobs.json").write_text(json.dumps(document))


def started(usage: Any = SERVER, **changes: Any) -> float:
    """The fraction that vLLM makes its configuration with, in a process of its own."""
    wrapped = start._with_fraction(lambda args, usage, headless: args.gpu_memory_utilization)
    return float(wrapped(arguments(**changes), usage_context=usage))


def begun() -> Begun:
    return Begun.read(os.environ[BEGUN])


def test_the_documents_fraction_is_on_record_and_in_force(
    environment: Path, tmp_path: Path
) -> None:
    put(tmp_path, 0.85)
    assert started() == 0.85
    assert begun() == Begun(MANIFEST, 0.85)
    assert StateFolder(str(environment)).read() == Record(Attempt(7, 0.85, "trying"))


def test_the_next_start_drops_what_was_not_confirmed(environment: Path, tmp_path: Path) -> None:
    put(tmp_path, 0.85)
    assert [started() for _ in range(4)] == [0.85, MANIFEST, MANIFEST, MANIFEST]
    assert begun().reason == "Dropped"
    put(tmp_path, 0.8, revision=8)
    assert [started() for _ in range(2)] == [0.8, MANIFEST]


@pytest.mark.parametrize("fraction", [0.04, 0.98, 1.0, -1, "0.9", None, [], True])
def test_no_document_gets_past_the_bounds(environment: Path, tmp_path: Path, fraction: Any) -> None:
    put(tmp_path, fraction)
    assert started() == MANIFEST
    assert begun().reason == ("NotWanted" if fraction is None else "Refused")


def test_without_a_document(environment: Path) -> None:
    assert started() == MANIFEST
    assert begun() == Begun(MANIFEST, MANIFEST, "NoDocument")


def test_what_is_no_server_is_left_alone(environment: Path, tmp_path: Path) -> None:
    put(tmp_path, 0.85)
    assert started(usage=UsageContext.LLM_CLASS) == MANIFEST
    assert begun().ineligible == "NotAnApiServer"
    assert list(environment.iterdir()) == []


def test_torn_record(environment: Path, tmp_path: Path) -> None:
    put(tmp_path, 0.85)
    (environment / "memory.json").write_text('{"schema": "evictune.io/mem')
    assert [started() for _ in range(2)] == [MANIFEST, MANIFEST]
    assert begun().reason == "Dropped"
    put(tmp_path, 0.85, revision=8)
    assert started() == 0.85


def test_no_folder_and_one_that_cannot_be_written(
    environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, 0.85)
    (environment / "memory.new").mkdir()
    assert started() == MANIFEST
    assert begun().ineligible == "StateFolderUnwritable"
    monkeypatch.setenv("EVICTUNE_STATE_DIR", str(environment / "missing"))
    assert started() == MANIFEST
    assert begun().ineligible == "NoStateFolder"
    monkeypatch.delenv("EVICTUNE_STATE_DIR")
    assert started() == MANIFEST
    assert begun().ineligible == "NoStateFolder"


def test_a_setting_that_cannot_be_used(
    environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, 0.85)
    monkeypatch.setenv("EVICTUNE_CONFIRM_SECONDS", "5m")
    assert started() == MANIFEST
    assert begun().ineligible == "SettingRefused"
    assert begun().message == "EVICTUNE_CONFIRM_SECONDS is '5m', want seconds such as 300"


def test_whatever_goes_wrong_the_engine_starts(
    environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, 0.85)

    def broken(_: Traffic) -> None:
        raise RuntimeError("a bug of ours")

    monkeypatch.setattr(start, "_watch", broken)
    assert started() == MANIFEST
    monkeypatch.undo()
    # Nothing was tried, so nothing has failed.
    assert not (environment / "memory.json").exists()


def test_not_ready_is_what_vllms_route_for_probes_makes_of_it(
    environment: Path, tmp_path: Path
) -> None:
    traffic = Traffic(serving=lambda: None)
    start._watch(traffic)
    client: Any = SimpleNamespace(errored=False)
    asyncio.run(AsyncLLM.check_health(client))
    traffic.leaving = True
    with pytest.raises(EngineDeadError):
        asyncio.run(AsyncLLM.check_health(client))


def test_the_process_ends_as_a_person_would_end_it_then_by_force(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    calls: list[object] = []
    monkeypatch.setattr(start.time, "monotonic", lambda: now)
    monkeypatch.setattr(os, "kill", lambda pid, number: calls.append((pid, number)))
    monkeypatch.setattr(os, "_exit", lambda code: calls.append(code))
    monkeypatch.setattr(system_utils, "kill_process_tree", lambda pid: calls.append(pid))
    end = start._ending(60)
    for passed in (0, 30, 30):
        now += passed
        end()
    assert calls == [(os.getpid(), signal.SIGTERM)]
    now += 1
    end()
    assert calls[1:] == [os.getpid(), 1]


def test_a_second_configuration_of_the_process_is_no_second_start(
    environment: Path, tmp_path: Path
) -> None:
    put(tmp_path, 0.85)
    wrapped = start._with_fraction(lambda args, usage, headless: args.gpu_memory_utilization)
    assert [wrapped(arguments(), SERVER) for _ in range(3)] == [0.85] * 3
    other = AsyncEngineArgs(model=str(cached_model(SMALL)), gpu_memory_utilization=0.3)
    assert wrapped(other, SERVER) == 0.3, "another engine's"


def test_loading_the_plugin_twice_wraps_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EngineArgs, "create_engine_config", EngineArgs.create_engine_config)
    plugin.register()
    once = EngineArgs.create_engine_config
    plugin.register()
    assert EngineArgs.create_engine_config is once
    assert hasattr(once, "_evictune")


def test_a_vllm_that_configures_itself_otherwise_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def other(self: Any, usage_context: Any = None, *, why: str = "") -> None: ...

    monkeypatch.setattr(EngineArgs, "create_engine_config", other)
    start.hook()
    assert EngineArgs.create_engine_config is other
    assert "this vLLM is not known" in caplog.text


def test_a_record_damaged_later_is_shown(environment: Path, tmp_path: Path) -> None:
    assert families_in({}) == []
    put(tmp_path, 0.85)
    started()
    eligible, fraction, attempt, restart = families_in(os.environ)
    assert [sample.value for sample in fraction.samples] == [MANIFEST, 0.85]
    assert attempt.samples[0].labels["state"] == "trying"
    assert restart.samples == []
    (environment / "memory.json").write_text("")
    eligible, *_ = families_in(os.environ)
    assert eligible.samples[0].labels["reason"] == "StateDamaged"
    assert eligible.samples[0].value == 0
