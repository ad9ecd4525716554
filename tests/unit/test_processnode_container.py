"""A container's runs: start, restart, back-off, probes, end. Time and processes are fake."""

from __future__ import annotations

import signal
from concurrent.futures import Executor, Future
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from localcluster.processnode.container import (
    BackOff,
    Clock,
    Container,
    Running,
    Runtime,
    Terminated,
    Waiting,
)
from localcluster.processnode.errors import ContainerConfigError
from localcluster.processnode.probes import CheckResult, Probe, ProbeSet
from localcluster.processnode.process import Exit, Launch


class Inline(Executor):
    """Runs a task at once, in the caller's thread."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


class FakeProcess:
    """A process that runs until the test ends it."""

    def __init__(self) -> None:
        self.pid: int | None = 100
        self.identity = "100-1"
        self.exit: Exit | None = None
        self.signals: list[signal.Signals] = []

    def poll(self) -> Exit | None:
        return self.exit

    def signal(self, number: signal.Signals) -> None:
        self.signals.append(number)
        if number is signal.SIGKILL:
            self.exit = Exit(137)

    def wait_started(self, timeout: float) -> None:
        pass

    def close(self) -> None:
        pass


class Bench:
    """One container under test."""

    def __init__(self, policy: str = "Always", log: Path = Path("/nowhere"), **spec: Any) -> None:
        self.now = 0.0
        self.processes: list[FakeProcess] = []
        self.config_error: ContainerConfigError | None = None
        self.healthy = True
        self.log = log
        self.spec = {"name": "c", "image": "i", **spec}
        clock = Clock(
            lambda: self.now, lambda: datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.now)
        )
        start: Any = self._start
        self.container = Container(
            self.spec, Runtime(self._prepare, self._probes, policy, 30.0, clock, start)
        )

    def _prepare(self, spec: Any) -> Launch:
        if self.config_error:
            raise self.config_error
        return Launch(["x"], {}, "/", str(self.log))

    def _start(self, launch: Launch) -> FakeProcess:
        self.processes.append(FakeProcess())
        return self.processes[-1]

    def _probes(self, spec: Any, launch: Launch) -> ProbeSet:
        def check() -> CheckResult:
            return CheckResult(self.healthy)

        return ProbeSet(
            {
                kind: Probe(spec[kind], check, Inline(), self.now)
                for kind in ("startupProbe", "readinessProbe", "livenessProbe")
                if kind in spec
            }
        )

    def step(self, seconds: float = 0.0) -> Any:
        """Let time pass in steps of 0.5 s, then report."""
        self.container.step()
        for _ in range(int(seconds / 0.5)):
            self.now += 0.5
            self.container.step()
        return self.container.report()

    def end(self, code: int) -> Any:
        self.processes[-1].exit = Exit(code)
        return self.step()


def test_it_runs() -> None:
    report = Bench().step()
    assert isinstance(report.state, Running)
    assert (report.ready, report.started, report.restarts) == (True, True, 0)
    assert report.container_id == "process://100-1"


def test_the_first_restart_is_immediate_the_next_backs_off() -> None:
    bench = Bench()
    bench.step()
    bench.end(3)
    report = bench.step()
    assert isinstance(report.state, Running)
    assert report.restarts == 1
    assert report.last.exit_code == 3
    report = bench.end(4)
    assert isinstance(report.state, Waiting)
    assert report.state.reason == "CrashLoopBackOff"
    assert report.last.exit_code == 4
    assert not report.ready
    assert bench.step(0.5).restarts == 1
    assert bench.step(1.0).restarts == 2


def test_back_off_doubles_to_its_limit_and_is_forgotten_after_a_long_run() -> None:
    back_off = BackOff()
    delays = [back_off.delay(ran_for=1) for _ in range(8)]
    assert delays == [0, 1, 2, 4, 8, 16, 30, 30]
    assert back_off.delay(ran_for=60) == 0
    assert back_off.delay(ran_for=1) == 1


@pytest.mark.parametrize(
    ("policy", "code", "restarts"),
    [
        ("Always", 0, True),
        ("Always", 1, True),
        ("OnFailure", 0, False),
        ("OnFailure", 1, True),
        ("Never", 0, False),
        ("Never", 1, False),
    ],
)
def test_restart_policies(policy: str, code: int, restarts: bool) -> None:
    bench = Bench(policy)
    bench.step()
    bench.end(code)
    bench.step(5)
    assert len(bench.processes) == (2 if restarts else 1)
    if not restarts:
        state = bench.step().state
        assert isinstance(state, Terminated)
        assert state.reason == ("Completed" if code == 0 else "Error")


def test_missing_configuration_is_told_and_tried_again() -> None:
    bench = Bench()
    bench.config_error = ContainerConfigError('configmap "m" not found')
    report = bench.step()
    assert report.state == Waiting("CreateContainerConfigError", 'configmap "m" not found')
    bench.config_error = None
    report = bench.step(1)
    assert isinstance(report.state, Running)
    assert report.restarts == 0


def test_a_command_that_cannot_be_executed_is_a_start_error() -> None:
    bench = Bench("Never")
    bench.step()
    bench.processes[-1].pid = None
    bench.processes[-1].exit = Exit(128, "[Errno 2] No such file")
    state = bench.step().state
    assert (state.exit_code, state.reason, state.message) == (
        128,
        "StartError",
        "[Errno 2] No such file",
    )


def test_readiness_gates_and_is_taken_back() -> None:
    bench = Bench(readinessProbe={"periodSeconds": 1, "failureThreshold": 2})
    bench.healthy = False
    assert not bench.step(3).ready
    bench.healthy = True
    assert bench.step(2).ready
    bench.healthy = False
    assert bench.step(1).ready, "one failure is below the threshold"
    assert not bench.step(2).ready
    assert len(bench.processes) == 1, "readiness restarts nothing"


def test_the_initial_delay_is_kept() -> None:
    bench = Bench(readinessProbe={"periodSeconds": 1, "initialDelaySeconds": 5})
    assert not bench.step(4.5).ready
    assert bench.step(2).ready


def test_liveness_terminates_then_kills_then_restarts() -> None:
    bench = Bench(
        livenessProbe={
            "periodSeconds": 1,
            "failureThreshold": 2,
            "terminationGracePeriodSeconds": 4,
        }
    )
    bench.step(1)
    bench.healthy = False
    bench.step(3)
    assert bench.processes[0].signals == [signal.SIGTERM]
    bench.step(5)
    assert bench.processes[0].signals == [signal.SIGTERM, signal.SIGKILL]
    assert len(bench.processes) == 2


def test_liveness_rests_until_startup_has_passed() -> None:
    bench = Bench(
        startupProbe={"periodSeconds": 1, "failureThreshold": 10},
        livenessProbe={"periodSeconds": 1, "failureThreshold": 1},
    )
    bench.healthy = False
    report = bench.step(5)
    assert (report.started, report.ready) == (False, False)
    assert bench.processes[0].signals == []
    bench.healthy = True
    report = bench.step(2)
    assert (report.started, report.ready) == (True, True)


def test_a_startup_that_never_passes_restarts() -> None:
    bench = Bench(startupProbe={"periodSeconds": 1, "failureThreshold": 3})
    bench.healthy = False
    bench.step(5)
    assert bench.processes[0].signals == [signal.SIGTERM]


def test_stop_terminates_kills_at_the_deadline_and_never_restarts() -> None:
    bench = Bench()
    bench.step()
    bench.container.stop(kill_at=3.0)
    bench.step(2)
    assert bench.processes[0].signals == [signal.SIGTERM]
    bench.container.stop(kill_at=2.5)  # a second deletion, with a shorter grace period
    report = bench.step(1)
    assert bench.processes[0].signals == [signal.SIGTERM, signal.SIGKILL]
    assert report.state.exit_code == 137
    bench.step(60)
    assert len(bench.processes) == 1


def test_a_failed_run_may_take_its_message_from_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("an earlier run\n")
    bench = Bench("Never", log, terminationMessagePolicy="FallbackToLogsOnError")
    bench.step()
    with log.open("a") as file:
        file.write("out of memory\n")
    assert bench.end(1).state.message == "out of memory\n"


def test_a_container_of_an_earlier_life_of_the_node_is_restarted_and_counted() -> None:
    bench = Bench()
    status = {
        "restartCount": 2,
        "containerID": "process://1-1",
        "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
    }
    bench.container.resume(status)
    report = bench.step()
    assert report.restarts == 3
    assert report.last.reason == "ContainerStatusUnknown"
    assert report.last.container_id == "process://1-1"


def test_a_container_that_had_completed_is_not_run_again() -> None:
    bench = Bench("OnFailure")
    ended = {"exitCode": 0, "reason": "Completed", "finishedAt": "2026-01-01T00:00:00Z"}
    bench.container.resume({"restartCount": 0, "state": {"terminated": ended}})
    assert bench.step().state.exit_code == 0
    assert bench.processes == []
