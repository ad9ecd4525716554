"""One container of a pod: runs its process, restarts it with back-off, tells its state.

The states are those of the Kubernetes API (waiting, running, terminated). The first restart is
immediate, as kubelet's; the back-off after that is 1 s, doubling to 30 s, where kubelet's is
10 s, doubling to 300 s. It is forgotten after a run of a minute.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from localcluster.processnode.api import ApiError, Json
from localcluster.processnode.errors import NotReadyError
from localcluster.processnode.probes import ProbeSet
from localcluster.processnode.process import KILLED_EXIT_CODE, Exit, Launch, Process

_START_TIMEOUT_SECONDS = 5.0
_CONFIG_RETRY_SECONDS = 0.5
# Limit of the API for a termination message taken from the log (kubelet's is the same).
_MESSAGE_BYTES = 2048


@dataclass(frozen=True)
class Clock:
    """Time, exchangeable in tests: seconds for durations, UTC for what is shown."""

    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], datetime] = field(default=lambda: datetime.now(UTC))


@dataclass(frozen=True)
class Waiting:
    """Not running: not yet, or not again."""

    reason: str
    message: str = ""


@dataclass(frozen=True)
class Running:
    """Running since `started_at`."""

    started_at: datetime


@dataclass(frozen=True)
class Terminated:
    """Ended; exit code 128 + N for signal N."""

    exit_code: int
    reason: str
    message: str
    started_at: datetime | None
    finished_at: datetime | None
    container_id: str = ""


State = Waiting | Running | Terminated


@dataclass(frozen=True)
class ContainerReport:
    """What the pod's status says about one container."""

    name: str
    image: str
    state: State
    last: Terminated | None
    ready: bool
    started: bool
    restarts: int
    container_id: str


class BackOff:
    """Seconds to wait before each restart: 0, then 1 doubling to 30."""

    initial = 1.0
    maximum = 30.0
    forgotten_after = 60.0

    def __init__(self) -> None:
        self._next = 0.0

    def delay(self, ran_for: float) -> float:
        """The wait after a run of `ran_for` seconds."""
        if ran_for >= self.forgotten_after:
            self._next = 0.0
        delay = self._next
        self._next = min(max(2 * delay, self.initial), self.maximum)
        return delay


@dataclass(frozen=True)
class Runtime:
    """What a container needs of its pod.

    `prepare` computes what to run, and raises NotReadyError or ApiError while that is not
    possible; `probes` makes the probes of a new run.
    """

    prepare: Callable[[Json], Launch]
    probes: Callable[[Json, Launch], ProbeSet]
    restart_policy: str
    grace_seconds: float
    clock: Clock
    start: Callable[[Launch], Process] = Process


class Container:
    """The runs of one container, one after the other. `step` moves it on."""

    def __init__(self, spec: Json, runtime: Runtime) -> None:
        self._spec = spec
        self._runtime = runtime
        self._state: State = Waiting("ContainerCreating")
        self._last: Terminated | None = None
        self._restarts = 0
        self._runs = 0
        self._back_off = BackOff()
        self._start_at = float("-inf")
        self._process: Process | None = None
        self._probes = ProbeSet({})
        self._container_id = ""
        self._log: tuple[Path, int] | None = None
        self._started_at = float("-inf")
        self._kill_at = float("inf")
        self._stopping = False
        self._told_to_stop = False

    @property
    def name(self) -> str:
        return str(self._spec["name"])

    @property
    def running(self) -> bool:
        return self._process is not None

    @property
    def succeeded(self) -> bool:
        """It ended with 0 and will not run again."""
        return isinstance(self._state, Terminated) and self._state.exit_code == 0

    @property
    def finished(self) -> bool:
        """It has ended and will not run again."""
        return isinstance(self._state, Terminated) and not self._wanted

    def resume(self, status: Json) -> None:
        """Continue the count of a container that ran on an earlier life of the node."""
        self._restarts = status.get("restartCount", 0)
        state = status.get("state", {})
        ended = state.get("terminated") or status.get("lastState", {}).get("terminated")
        if "running" in state:
            self._last = Terminated(
                KILLED_EXIT_CODE,
                "ContainerStatusUnknown",
                "the container ended with the node's process",
                _parse_time(state["running"].get("startedAt")),
                self._runtime.clock.wall(),
                status.get("containerID", ""),
            )
        elif ended:
            self._last = Terminated(
                ended["exitCode"],
                ended.get("reason", ""),
                ended.get("message", ""),
                _parse_time(ended.get("startedAt")),
                _parse_time(ended.get("finishedAt")),
                ended.get("containerID", ""),
            )
        if self._last is not None:
            self._runs = 1
            self._state = self._last

    def step(self) -> None:
        """Start, restart, check or kill, as due."""
        now = self._runtime.clock.monotonic()
        if self._process is not None:
            self._step_running(self._process, now)
        # In the same step as an end, for writing the status in between may take long.
        if self._process is None and self._wanted and now >= self._start_at:
            self._start(now)

    def stop(self, kill_at: float) -> None:
        """Send SIGTERM, and SIGKILL at `kill_at` (monotonic seconds); it does not run again."""
        self._stopping = True
        self._terminate(kill_at)

    def kill(self) -> None:
        """Kill what is running, at once."""
        if self._process is not None:
            self._process.close()
            self._process = None

    def report(self) -> ContainerReport:
        return ContainerReport(
            name=self.name,
            image=self._spec.get("image", ""),
            state=self._state,
            last=None if self._state is self._last else self._last,
            ready=self.running and self._probes.ready,
            started=self.running and self._probes.started,
            restarts=self._restarts,
            container_id=self._container_id,
        )

    @property
    def _wanted(self) -> bool:
        """Whether it should be started when it is not running."""
        if self._stopping:
            return False
        if not isinstance(self._state, Terminated):
            return True
        policy = self._runtime.restart_policy
        return policy == "Always" or (policy == "OnFailure" and self._state.exit_code != 0)

    def _start(self, now: float) -> None:
        try:
            launch = self._runtime.prepare(self._spec)
        except (NotReadyError, ApiError) as error:
            reason = error.reason if isinstance(error, NotReadyError) else NotReadyError.reason
            self._state = Waiting(reason, str(error))
            self._start_at = now + _CONFIG_RETRY_SECONDS
            return
        log = Path(launch.log)
        self._log = (log, log.stat().st_size if log.exists() else 0)
        process = self._runtime.start(launch)
        process.wait_started(_START_TIMEOUT_SECONDS)
        if self._runs:
            self._restarts += 1
        self._runs += 1
        self._process = process
        self._container_id = f"process://{process.identity}"
        self._state = Running(self._runtime.clock.wall())
        self._started_at = now
        self._kill_at = float("inf")
        self._told_to_stop = False
        self._probes = self._runtime.probes(self._spec, launch)

    def _step_running(self, process: Process, now: float) -> None:
        if ended := process.poll():
            self._ended(process, ended, now)
            return
        if now >= self._kill_at:
            process.signal(signal.SIGKILL)
            self._kill_at = float("inf")
        if self._told_to_stop:
            return
        self._probes.step(now)
        if failed := self._probes.failed:
            grace = failed.grace_seconds
            self._terminate(now + (self._runtime.grace_seconds if grace is None else grace))

    def _terminate(self, kill_at: float) -> None:
        if self._process is None:
            return
        if not self._told_to_stop:
            self._told_to_stop = True
            self._kill_at = kill_at
            self._process.signal(signal.SIGTERM)
        else:
            self._kill_at = min(self._kill_at, kill_at)

    def _ended(self, process: Process, ended: Exit, now: float) -> None:
        process.close()
        self._process = None
        reason = (
            "Completed" if ended.code == 0 else "StartError" if process.pid is None else "Error"
        )
        began = self._state.started_at if isinstance(self._state, Running) else None
        message = ended.error or self._message_from_log(ended.code)
        finished = self._runtime.clock.wall()
        self._last = Terminated(ended.code, reason, message, began, finished, self._container_id)
        self._state = self._last
        if not self._wanted:
            return
        delay = self._back_off.delay(now - self._started_at)
        self._start_at = now + delay
        if delay:
            text = f"back-off {delay:g}s restarting failed container={self._spec['name']}"
            self._state = Waiting("CrashLoopBackOff", text)

    def _message_from_log(self, code: int) -> str:
        """The end of a failed run's output, if the container asks for it as its message."""
        policy = self._spec.get("terminationMessagePolicy")
        if code == 0 or policy != "FallbackToLogsOnError" or self._log is None:
            return ""
        path, offset = self._log
        data = path.read_bytes()[offset:] if path.exists() else b""
        return data[-_MESSAGE_BYTES:].decode(errors="replace")


def _parse_time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
