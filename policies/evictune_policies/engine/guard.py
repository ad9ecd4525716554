"""Watches over a start: confirms its memory fraction, and ends the engine when it is asked to.

Runs in the API server's process, in a thread of its own, from the moment the engine is ready. An
engine that hangs answers nothing, so only answers confirm: the last one at least so long after the
first. A restart goes in four steps, each of which may be the last one if the container is killed
meanwhile: the request is on record as carried out; the pod says that it is not ready; it waits
until that is known and its requests are answered, or its time is up; the process ends.
"""

import logging
import threading
import time
from collections.abc import Callable

from evictune_policies.engine.memory import Record, confirm, leave, restart_due
from evictune_policies.engine.source import KnobSource
from evictune_policies.engine.state import StateError, StateFolder
from evictune_policies.engine.traffic import Traffic
from evictune_policies.engine.watching import watch

logger = logging.getLogger("vllm.evictune.memory")


class Guard:
    """Works by :meth:`tick`.

    Args:
        folder: Where the record is kept; this process has claimed it.
        record: As it was written for this start.
        source: The knob document.
        traffic: Of this API server.
        confirm_seconds: How long the engine has to have served for its fraction to be trusted.
        not_ready_seconds: How long a restart waits at least for the cluster to see it coming.
        end: Ends the process; called again every tick until it has.
    """

    def __init__(
        self,
        folder: StateFolder,
        record: Record,
        source: KnobSource,
        traffic: Traffic,
        confirm_seconds: float,
        not_ready_seconds: float,
        end: Callable[[], None],
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = folder
        self._record = record
        self._source = source
        self._traffic = traffic
        self._confirm_seconds = confirm_seconds
        self._not_ready_seconds = not_ready_seconds
        self._end = end
        self._clock = clock
        self._monotonic = monotonic
        self._left_at: float | None = None
        self._drain_seconds = 0.0
        self._trouble = ""
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Watch from now on; once, however often it is called."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="evictune-memory", daemon=True)
            self._thread.start()

    def tick(self) -> None:
        """One look at everything."""
        wanted = self._source.poll(self._clock())
        served = self._traffic.served_seconds
        if served is not None and served >= self._confirm_seconds:
            self._put(confirm(self._record))
        document = self._source.document
        if self._left_at is not None:
            self._end_if_drained(self._left_at)
        elif document is not None and wanted.revision == document.revision:
            token = restart_due(self._record, document)
            if token is not None:
                self._leave(token, document.memory.drain_seconds)

    def _leave(self, token: str, drain_seconds: float) -> None:
        """Say that the pod is not ready, once it is certain that it is said only once."""
        if not self._put(leave(self._record, token)):
            return
        logger.warning("Restart %s: not ready; ends within %.0f s", token, drain_seconds)
        self._drain_seconds = drain_seconds
        self._left_at = self._monotonic()
        self._traffic.leaving = True

    def _end_if_drained(self, left_at: float) -> None:
        since = self._monotonic() - left_at
        known = since >= self._not_ready_seconds
        in_flight = self._traffic.in_flight
        if (known and not in_flight) or since >= self._drain_seconds:
            logger.warning("Ending for a restart after %.0f s, %d requests open", since, in_flight)
            self._end()

    def _put(self, record: Record) -> bool:
        """Have the record on the disk. What cannot be written is not acted upon."""
        if record == self._record:
            return True
        try:
            self._folder.write(record)
        except StateError as error:
            if str(error) != self._trouble:
                self._trouble = str(error)
                logger.error("Neither confirmed nor restarted: %s", error)
            return False
        if record.attempt != self._record.attempt:
            logger.info("On record: %s", record.attempt)
        self._record = record
        return True

    def _watch(self) -> None:
        watch(self.tick, "guard", logger)
