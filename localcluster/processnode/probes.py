"""Startup, readiness and liveness probes: when to check, and what the results mean.

Semantics: pkg/kubelet/prober of Kubernetes. A probe is checked every period after its initial
delay; it changes its mind after `successThreshold` or `failureThreshold` equal results in a row.
Until the startup probe has passed, the others rest.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from pathlib import Path

from localcluster.processnode.api import Json
from localcluster.processnode.process import Launch, Process


@dataclass(frozen=True)
class CheckResult:
    """One check's outcome; the message says why it failed."""

    passed: bool
    message: str = ""


Check = Callable[[], CheckResult]


class Probe:
    """One probe of a running container. `result` is None until a threshold is reached."""

    def __init__(self, spec: Json, check: Check, executor: Executor, started_at: float) -> None:
        self._spec = spec
        self._check = check
        self._executor = executor
        self._due = started_at + spec.get("initialDelaySeconds", 0)
        self._running: Future[CheckResult] | None = None
        self._last: bool | None = None
        self._streak = 0
        self.result: bool | None = None
        self.message = ""

    @property
    def grace_seconds(self) -> int | None:
        """How long a container may take to stop after this probe failed, if the probe says so."""
        seconds: int | None = self._spec.get("terminationGracePeriodSeconds")
        return seconds

    def step(self, now: float) -> None:
        """Take in a finished check, and begin the next one if it is due (seconds, monotonic)."""
        if self._running is not None:
            if not self._running.done():
                return
            self._record(self._running.result())
            self._running = None
        if now >= self._due:
            self._due = now + self._spec.get("periodSeconds", 10)
            self._running = self._executor.submit(self._check)

    def _record(self, outcome: CheckResult) -> None:
        self._streak = self._streak + 1 if outcome.passed == self._last else 1
        self._last = outcome.passed
        threshold = (
            self._spec.get("successThreshold", 1)
            if outcome.passed
            else self._spec.get("failureThreshold", 3)
        )
        if self._streak >= threshold:
            self.result = outcome.passed
            self.message = outcome.message


class ProbeSet:
    """The three probes of one run of a container."""

    def __init__(self, probes: Mapping[str, Probe]) -> None:
        self._startup = probes.get("startupProbe")
        self._readiness = probes.get("readinessProbe")
        self._liveness = probes.get("livenessProbe")

    @property
    def started(self) -> bool:
        return self._startup is None or self._startup.result is True

    @property
    def ready(self) -> bool:
        return self.started and (self._readiness is None or self._readiness.result is True)

    @property
    def failed(self) -> Probe | None:
        """The startup or liveness probe on whose account the container must be restarted."""
        for probe in (self._startup, self._liveness):
            if probe is not None and probe.result is False:
                return probe
        return None

    def step(self, now: float) -> None:
        if not self.started:
            assert self._startup is not None
            self._startup.step(now)
            return
        for probe in (self._readiness, self._liveness):
            if probe is not None:
                probe.step(now)


def make_check(spec: Json, container: Json, address: str, launch: Launch) -> Check:
    """The check that a probe's spec describes, for a container at `address` run as `launch`."""
    timeout = float(spec.get("timeoutSeconds", 1))
    if http_get := spec.get("httpGet"):
        port = _port(http_get["port"], container)
        return lambda: _check_http(http_get, http_get.get("host") or address, port, timeout)
    if tcp := spec.get("tcpSocket"):
        host, port = tcp.get("host") or address, _port(tcp["port"], container)
        return lambda: _check_tcp(host, port, timeout)
    return lambda: _check_exec(spec["exec"]["command"], launch, timeout)


def _port(value: int | str, container: Json) -> int:
    """A port by number or by the name of one of the container's ports; -1 for an unknown name."""
    for port in container.get("ports") or []:
        if port.get("name") == value:
            return int(port["containerPort"])
    return int(value) if str(value).isdigit() else -1


def _check_http(spec: Json, host: str, port: int, timeout: float) -> CheckResult:
    if spec.get("scheme") == "HTTPS":
        # As kubelet does: a probe asks whether the server answers, not who it is.
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            host, port, timeout=timeout, context=context
        )
    else:
        connection = http.client.HTTPConnection(host, port, timeout=timeout)
    headers = {header["name"]: header["value"] for header in spec.get("httpHeaders") or []}
    path = "/" + spec.get("path", "/").lstrip("/")
    try:
        connection.request("GET", path, headers={"User-Agent": "kube-probe/process", **headers})
        status = connection.getresponse().status
    except (OSError, OverflowError, http.client.HTTPException) as error:
        return CheckResult(False, f"Get http://{host}:{port}{path}: {error}")
    finally:
        connection.close()
    return CheckResult(200 <= status < 400, f"HTTP probe failed with statuscode: {status}")


def _check_tcp(host: str, port: int, timeout: float) -> CheckResult:
    try:
        socket.create_connection((host, port), timeout=timeout).close()
    except (OSError, OverflowError) as error:
        return CheckResult(False, f"dial tcp {host}:{port}: {error}")
    return CheckResult(True)


def _check_exec(command: Sequence[str], launch: Launch, timeout: float) -> CheckResult:
    with tempfile.TemporaryDirectory(prefix="exec-probe-") as scratch:
        log = Path(scratch) / "output"
        process = Process(replace(launch, argv=command, log=str(log)))
        try:
            ended = process.wait(timeout)
        finally:
            process.close()
        if ended is None:
            return CheckResult(False, f"command timed out after {timeout:g} s")
        output = log.read_text(errors="replace") if log.exists() else ""
        return CheckResult(ended.code == 0, ended.error or output[:1024])
