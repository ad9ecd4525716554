"""Runs the plugin inside one EngineCore: attaches it, watches the knobs, reports.

vLLM loads general plugins in the API server, in every EngineCore and in the workers. The scheduler
lives in EngineCore only, and only EngineCore runs ``run_busy_loop``: hooking that one method gives
every engine rank its own state, and leaves the other processes as they are.

A watcher thread polls the knob document and serves the metrics; it never touches the scheduler.
What it wants changed it puts into a slot, which the scheduler's own thread empties before a step.
When the engine is idle there is no step: vLLM runs its idle-state callbacks on the scheduler's
thread whenever something arrives in the input queue, so the watcher leaves one there and wakes it.
A change is reported as in force only after the scheduler's thread has applied it.
"""

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial, wraps
from typing import Any

from vllm.v1.engine import EngineCoreRequestType
from vllm.v1.engine.core import EngineCoreProc

from evictune_policies.engine.internals import ineligibility
from evictune_policies.engine.memory_series import families_in
from evictune_policies.engine.metrics import (
    MetricsPort,
    Report,
    ReportDirectory,
    SettingError,
)
from evictune_policies.engine.source import KnobSource, Wanted, place_and_pod
from evictune_policies.engine.tlru import TailOptimizedLRU
from evictune_policies.engine.watching import watch

logger = logging.getLogger("vllm.evictune")


class EngineRuntime:
    """The plugin in one engine rank.

    Args:
        core: The ``EngineCoreProc``, ready to run, no request yet.
        environ: ``EVICTUNE_KNOBS_DIR``, ``EVICTUNE_POD_NAME``, ``EVICTUNE_METRICS_ADDRESS``.
        clock: Seconds since the epoch.
    """

    def __init__(
        self,
        core: Any,
        environ: Mapping[str, str] = os.environ,
        clock: Callable[[], float] = time.time,
    ) -> None:
        directory, pod = place_and_pod(environ)
        address = environ.get("EVICTUNE_METRICS_ADDRESS") or "0.0.0.0:9410"
        self._core = core
        self._clock = clock
        self._engine = str(core.engine_index)
        self._source = KnobSource(directory, pod)
        reports = ReportDirectory(f"{address} {pod}")
        self._port = MetricsPort(address, self.report, reports, partial(families_in, environ))
        self._policy: TailOptimizedLRU | None = None
        self._offered = self._in_force = Wanted()
        self._slot: deque[Wanted] = deque(maxlen=1)
        self._changes, self._change_seconds = 0, 0.0
        self._ineligible, why = ineligibility(core)
        if self._ineligible:
            logger.warning("Staying with stock LRU: %s: %s", self._ineligible, why)
            return
        self._policy = TailOptimizedLRU(core.scheduler.kv_cache_manager)
        self._policy.install()
        core.step_fn = self._stepping(core.step_fn)
        logger.info("Engine %s takes its knobs from %s as pod %s", self._engine, directory, pod)

    def start(self) -> None:
        """Watch and report from now on, in a thread that does not keep the process alive."""
        threading.Thread(target=self._watch, name="evictune", daemon=True).start()

    def report(self) -> Report:
        """What is in force now. From any thread."""
        in_force, refusal = self._in_force, self._source.refusal
        knobs = in_force.knobs
        return Report(
            engine=self._engine,
            policy=knobs.policy,
            xi_tokens=knobs.xi_tokens,
            q_hat_tokens=knobs.q_hat_tokens,
            revision=in_force.revision,
            ineligible=self._ineligible,
            evicted=self._policy.evicted if self._policy else {},
            recomputed_tokens=self._policy.recompute.tokens if self._policy else 0,
            change_seconds=self._change_seconds,
            changes=self._changes,
            refused=dict(self._source.refused),
            refusal=(refusal.reason, refusal.message) if refusal else None,
        )

    def tick(self) -> None:
        """One round of the watcher: look at the knobs, then at the metrics port."""
        before = self._source.refusal
        wanted = self._source.poll(self._clock())
        if self._source.refusal not in (None, before):
            logger.warning("Knob document refused: %s", self._source.refusal)
        if self._policy is not None and wanted != self._offered:
            self._offered = wanted
            self._slot.append(wanted)
            self._wake()
        self._port.tick()

    def _watch(self) -> None:
        watch(self.tick, "watcher", logger)

    def _wake(self) -> None:
        """Have an idle scheduler thread empty the slot; a busy one does at its next step."""
        self._core._idle_state_callbacks.append(lambda _core: self._empty_slot())
        self._core.input_queue.put_nowait((EngineCoreRequestType.WAKEUP, None))

    # Below: on the scheduler's thread.

    def _stepping(self, stock_step: Callable[[], Any]) -> Callable[[], Any]:
        slot = self._slot

        def step() -> Any:
            if slot:
                self._empty_slot()
            return stock_step()

        return step

    def _empty_slot(self) -> None:
        if not self._slot or self._policy is None:
            return
        wanted = self._slot.pop()
        start = time.perf_counter()
        changed = wanted.knobs != self._policy.knobs
        try:
            self._policy.apply(wanted.knobs)
        except Exception:
            # On the scheduler's thread: whatever it is, it may cost the change, never the engine.
            self._ineligible = "PolicyFailed"
            logger.exception("Could not apply %s; what was in force stays", wanted)
            return
        if changed:
            self._changes += 1
            self._change_seconds += time.perf_counter() - start
        self._in_force = wanted
        logger.info("In force: %s", wanted)


def hook() -> None:
    """Have every engine of this process run the plugin. Idempotent."""
    for engine_class in (EngineCoreProc, *EngineCoreProc.__subclasses__()):
        stock = engine_class.__dict__.get("run_busy_loop")
        if stock is not None and not hasattr(stock, "_evictune"):
            engine_class.run_busy_loop = _with_runtime(stock)


def _with_runtime(stock: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @wraps(stock)
    def run_busy_loop(core: Any) -> Any:
        try:
            EngineRuntime(core).start()
        except SettingError as error:
            logger.error("Staying with stock LRU: %s", error)
        except Exception:  # whatever it is, the engine must run
            logger.exception("The evictune plugin failed to start; staying with stock LRU")
        return stock(core)

    run_busy_loop._evictune = True  # type: ignore[attr-defined]
    return run_busy_loop
