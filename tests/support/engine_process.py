"""A real vLLM server on the CPU with the plugin in it, as a process of the test."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from demo.constants import ModelSize
from demo.model import cached_model

START_SECONDS = 400
SMALL = ModelSize(layers=2, hidden=64, intermediate=128, heads=2, head=32)
BLOCK_TOKENS = 32
Labels = dict[str, str]


def free_address(host: str) -> str:
    """``HOST:PORT`` with a port that is free now."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return f"{host}:{probe.getsockname()[1]}"


@dataclass(frozen=True)
class Answer:
    """One completion and what it cost."""

    text: str
    cached_tokens: int


class EngineProcess:
    """Starts with :meth:`start`, and is gone, workers included, after :meth:`stop`.

    Args:
        directory: For the log and the knobs.
        host: A loopback address that nothing else uses.
        blocks: KV blocks the engine has; None: as many as its share of the memory holds.
        arguments: Further arguments of the server.
        environment: Further environment variables.
    """

    def __init__(
        self,
        directory: Path,
        host: str,
        blocks: int | None = 80,
        arguments: Sequence[str] = (),
        environment: dict[str, str] | None = None,
    ) -> None:
        self.knobs = directory / "knobs"
        self.knobs.mkdir(exist_ok=True)
        self.log = directory / "engine.log"
        self.address = free_address(host)
        self.metrics_address = f"{host}:9410"
        self._environment = {
            **os.environ,
            "HF_HUB_OFFLINE": "1",
            "EVICTUNE_KNOBS_DIR": str(self.knobs),
            "EVICTUNE_POD_NAME": "chat-0",
            "EVICTUNE_METRICS_ADDRESS": self.metrics_address,
            **(environment or {}),
        }
        self._command = self._server_command(blocks, arguments)
        self._process: subprocess.Popen[bytes] | None = None

    def _server_command(self, blocks: int | None, arguments: Sequence[str]) -> list[str]:
        host, port = self.address.split(":")
        command = f"""
            -m vllm.entrypoints.openai.api_server --served-model-name tiny --host {host}
            --port {port} --dtype float32 --max-model-len 2048 --enforce-eager
            --enable-prefix-caching --block-size {BLOCK_TOKENS} --max-num-seqs 8
            --max-num-batched-tokens 2048 --enable-prompt-tokens-details
        """.split()
        if blocks is not None:
            command += ["--kv-cache-memory-bytes", "16M", "--num-gpu-blocks-override", str(blocks)]
        return [sys.executable, *command, "--model", str(cached_model(SMALL)), *arguments]

    def start(self) -> None:
        """Return when the server answers.

        Raises:
            RuntimeError: When it does not; the message has the end of its log.
        """
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
                cwd=self.knobs.parent,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_SECONDS
        while not self._is_healthy():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"engine did not start:\n{self.log.read_text()[-3000:]}")
            time.sleep(0.5)

    def stop(self) -> None:
        """End the server and everything it started."""
        if self._process is None:
            return
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):  # then it is killed
            self._process.wait(20)
        with suppress(ProcessLookupError):  # all ended by themselves
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _is_healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self.address}/health", timeout=5):
                return True
        except OSError:
            return False

    def complete(self, prompt: Sequence[int], tokens: int = 8) -> Answer:
        """The greedy completion of a prompt of token ids."""
        answer = self.post(
            "/v1/completions",
            {
                "model": "tiny",
                "prompt": list(prompt),
                "max_tokens": tokens,
                "temperature": 0,
                "ignore_eos": True,
            },
        )
        details = answer["usage"]["prompt_tokens_details"] or {}
        return Answer(answer["choices"][0]["text"], details.get("cached_tokens") or 0)

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """POST JSON and return the JSON answer ({} if empty)."""
        request = urllib.request.Request(
            f"http://{self.address}{path}",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.loads(answer.read() or b"{}")  # type: ignore[no-any-return]

    def put_knobs(self, text: str | None) -> None:
        """Replace the document atomically; None removes it."""
        file = self.knobs / "knobs.json"
        if text is None:
            file.unlink(missing_ok=True)
            return
        new = self.knobs / "new"
        new.write_text(text)
        new.replace(file)

    def series(self, name: str) -> list[tuple[Labels, float]]:
        """Samples of one of the plugin's series; none while the port is not the plugin's."""
        try:
            address = f"http://{self.metrics_address}/metrics"
            with urllib.request.urlopen(address, timeout=5) as page:
                text = page.read().decode()
        except OSError:
            return []
        return [
            (dict(sample.labels), sample.value)
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == name
        ]

    def in_force(self) -> dict[str, tuple[str, str, str, str]]:
        """By engine rank: policy, xi, q_hat, revision."""
        return {
            labels["engine"]: (
                labels["policy"], labels["xi_tokens"], labels["q_hat_tokens"], labels["revision"],
            )
            for labels, _ in self.series("evictune_policy_info")
        }  # fmt: skip

    def engine_pids(self) -> dict[int, str]:
        """Processes of the engine's session that are still the same: id and start time."""
        assert self._process is not None
        pids = {}
        for status in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = status.read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(fields[3]) == self._process.pid:
                pids[int(status.parent.name)] = fields[19]
        return pids
