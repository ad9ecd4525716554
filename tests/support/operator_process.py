"""The operator as a process of its own, as it runs in a cluster; killed as a crash would."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import yaml
from prometheus_client.parser import text_string_to_metric_families


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def eventually(check: Callable[[], Any], what: str, seconds: float = 120.0) -> Any:
    """The first true answer. Raises TimeoutError saying what did not come about."""
    deadline = time.monotonic() + seconds
    while True:
        found = check()
        if found:
            return found
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {seconds:g} s; last seen {found!r}")
        time.sleep(0.1)


class OperatorProcess:
    """`evictune run`, from start to SIGTERM or SIGKILL.

    identity: of the lease's holder. The same one takes over at once what a killed one held, as a
    restarted container does; only one of them may run at a time.
    """

    def __init__(
        self,
        directory: Path,
        kubeconfig: Path,
        sources: dict[str, Any] | None = None,
        *arguments: str,
        identity: str = "operator",
        lease: dict[str, str] | None = None,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.metrics_port, self.liveness_port = free_port(), free_port()
        self.config = directory / "config.yaml"
        configuration = {
            "sources": sources or {"default": {"direct": {"timeout": "2s"}}},
            "metricsAddress": f"127.0.0.1:{self.metrics_port}",
            "livenessAddress": f"127.0.0.1:{self.liveness_port}",
            "lease": lease or {},
        }
        self.config.write_text(yaml.safe_dump(configuration))
        self.log = directory / "operator.log"
        self._command = [sys.executable, "-m", "evictune.cli", "run"]
        self._command += ["--config", str(self.config)]
        self._command += ["--kubeconfig", str(kubeconfig), "--log-format", "text"]
        self._command += ["--identity", identity, *arguments]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=_environment()
            )
        return self

    def __exit__(self, *_: object) -> None:
        process = self._process
        if process is None or process.poll() is not None:
            return
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """SIGKILL, as a crash or a lost node."""
        self.send(signal.SIGKILL)
        self.wait()

    def send(self, number: signal.Signals) -> None:
        """A signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def wait(self, seconds: float | None = None) -> int:
        """Its exit code, once it has ended. Raises subprocess.TimeoutExpired."""
        assert self._process is not None
        return self._process.wait(seconds)

    def metrics(self) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        """The operator's own series now."""
        address = f"http://127.0.0.1:{self.metrics_port}/metrics"
        with urllib.request.urlopen(address, timeout=5) as answer:
            text = answer.read().decode()
        return {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def value(self, name: str, **labels: str) -> float | None:
        """One series' value; None while it, or the page, is not there."""
        with contextlib.suppress(OSError):
            return self.metrics().get((name, frozenset(labels.items())))
        return None

    def alive(self) -> bool:
        """Whether the liveness endpoint answers."""
        with contextlib.suppress(OSError):
            address = f"http://127.0.0.1:{self.liveness_port}/healthz"
            with urllib.request.urlopen(address, timeout=5) as answer:
                return bool(answer.status == 200)
        return False


def _environment() -> dict[str, str]:
    root = Path(__file__).resolve().parents[2]
    return {**os.environ, "PYTHONPATH": f"{root / 'operator'}", "PYTHONUNBUFFERED": "1"}
