"""The memory fraction at vLLM's start: chosen before the engine's configuration is made.

Only a process that is about to make a configuration has vLLM's ``arg_utils`` loaded; there
``EngineArgs.create_engine_config`` is wrapped. What a start decided goes to the engine cores by the
environment: they report it.

Whatever goes wrong here, the engine starts as its command line says.
"""

import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from functools import wraps
from inspect import signature
from typing import Any

from evictune_policies.engine.eligibility import memory_ineligibility
from evictune_policies.engine.guard import Guard
from evictune_policies.engine.memory import Record, Start, begin, damaged
from evictune_policies.engine.memory_series import BEGUN, Begun
from evictune_policies.engine.metrics import SettingError
from evictune_policies.engine.source import KnobSource, place_and_pod
from evictune_policies.engine.state import StateError, StateFolder
from evictune_policies.engine.traffic import Traffic

logger = logging.getLogger("vllm.evictune.memory")

_PARAMETERS = ["self", "usage_context", "headless"]
# How long vLLM may take to end by itself once its requests are answered or given up.
_END_SECONDS = 60.0


def hook() -> None:
    """Have the engine that this process configures take its fraction so. Idempotent."""
    module = sys.modules.get("vllm.engine.arg_utils")
    if module is None:
        return
    stock = module.EngineArgs.create_engine_config
    if hasattr(stock, "_evictune"):
        return
    if list(signature(stock).parameters) == _PARAMETERS:
        module.EngineArgs.create_engine_config = _with_fraction(stock)
    else:
        logger.warning("The memory fraction stays the manifest's: this vLLM is not known")


def _with_fraction(stock: Callable[..., Any]) -> Callable[..., Any]:
    decided: list[Begun] = []

    @wraps(stock)
    def create_engine_config(args: Any, usage_context: Any = None, headless: bool = False) -> Any:
        manifest = args.gpu_memory_utilization
        try:
            begun = decided[0] if decided else _begun(args, usage_context, headless)
            if not begun.ineligible and not decided:
                decided.append(begun)  # for good, however often a configuration is made
            logger.info("Memory fraction: %s", begun)
            os.environ[BEGUN] = begun.text()
            if manifest == begun.manifest:
                args.gpu_memory_utilization = begun.in_force
        except Exception:  # whatever it is, the engine must start
            logger.exception("The memory fraction stays the manifest's")
            args.gpu_memory_utilization = manifest
        return stock(args, usage_context, headless)

    create_engine_config._evictune = True  # type: ignore[attr-defined]
    return create_engine_config


def _begun(args: Any, usage: Any, headless: bool) -> Begun:
    manifest = args.gpu_memory_utilization
    reason, message = memory_ineligibility(args, usage, headless, os.environ)
    if not reason:
        try:
            start = _started(manifest, _END_SECONDS + args.shutdown_timeout, os.environ)
        except StateError as error:
            reason, message = error.reason, str(error)
        except SettingError as error:
            reason, message = "SettingRefused", str(error)
        else:
            in_force = manifest if start.fraction is None else start.fraction
            return Begun(manifest, in_force, start.reason)
    return Begun(manifest, manifest, ineligible=reason, message=message)


def _started(manifest: float, end_seconds: float, environ: Mapping[str, str]) -> Start:
    """Judge this start, and put the judgement on record. Raises StateError, SettingError."""
    confirm_seconds = _seconds(environ, "EVICTUNE_CONFIRM_SECONDS", 300.0)
    not_ready_seconds = _seconds(environ, "EVICTUNE_NOT_READY_SECONDS", 40.0)
    folder = StateFolder(environ.get("EVICTUNE_STATE_DIR"))
    folder.claim()
    source = KnobSource(*place_and_pod(environ))
    source.poll(time.time())
    record, start = begin(
        _record(folder, source), source.document, source.refusal is None, manifest
    )
    traffic = Traffic(serving=lambda: guard.start())
    guard = Guard(
        folder, record, source, traffic, confirm_seconds, not_ready_seconds, _ending(end_seconds)
    )
    _watch(traffic)
    folder.write(record)  # last: what fails before is no attempt
    return start


def _record(folder: StateFolder, source: KnobSource) -> Record:
    try:
        return folder.read()
    except StateError as error:
        if error.reason != "StateDamaged":
            raise
        logger.error("What is wanted now is not tried under this revision: %s", error)
        return damaged(source.document)


def _watch(traffic: Traffic) -> None:
    """Have the API server of this process count its requests, and say when it is not ready."""
    from fastapi import FastAPI
    from vllm.v1.engine.async_llm import AsyncLLM
    from vllm.v1.engine.exceptions import EngineDeadError

    stock = AsyncLLM.check_health

    @wraps(stock)
    async def check_health(client: Any) -> None:
        if traffic.leaving:
            raise EngineDeadError  # what vLLM's route for probes answers with 503
        await stock(client)

    AsyncLLM.check_health = check_health
    FastAPI.__call__ = traffic.around(FastAPI.__call__)  # type: ignore[assignment]


def _ending(seconds: float) -> Callable[[], None]:
    """End this process as a person would; if that takes longer than it may, by force."""
    since: list[float] = []

    def end() -> None:
        now = time.monotonic()
        if not since:
            since.append(now)
            os.kill(os.getpid(), signal.SIGTERM)
        elif now - since[0] > seconds:
            from vllm.utils.system_utils import kill_process_tree

            logger.error("vLLM has not ended within %.0f s: it is killed", seconds)
            kill_process_tree(os.getpid())
            os._exit(1)  # process 1 of a container cannot kill itself

    return end


def _seconds(environ: Mapping[str, str], name: str, default: float) -> float:
    text = environ.get(name) or str(default)
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 86_400:
        raise SettingError(f"{name} is {text!r}, want seconds such as {default:.0f}")
    return seconds
