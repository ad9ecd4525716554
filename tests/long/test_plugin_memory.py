"""The memory fraction in a real vLLM on the CPU, where it is a share of the machine's memory.

One engine over its starts, as a kubelet would start its container again: the folder with the record
and the one with the knob document stay, everything else goes.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.engine_process import EngineProcess

HOST = f"127.95.{os.getpid() % 250 + 1}.1"
MANIFEST = 0.10
CONFIRM_SECONDS = 4
NOT_READY_SECONDS = 5

pytestmark = pytest.mark.timeout(1800)  # up to three starts a test, each minutes on a busy machine


class Pod(EngineProcess):
    """An engine behind a shell, as many manifests have it."""

    def __init__(self, directory: Path) -> None:
        self.state = directory / "state"
        self.state.mkdir()
        super().__init__(
            directory,
            HOST,
            blocks=None,
            arguments=["--gpu-memory-utilization", str(MANIFEST)],
            environment={
                "EVICTUNE_STATE_DIR": str(self.state),
                "EVICTUNE_CONFIRM_SECONDS": str(CONFIRM_SECONDS),
                "EVICTUNE_NOT_READY_SECONDS": str(NOT_READY_SECONDS),
            },
        )
        script = '"$@"; status=$?; echo ended; exit $status'
        self._command = ["bash", "-c", script, "-", *self._command]

    def want(self, revision: int, fraction: float | None, restart: str | None = None) -> None:
        """Put a document with the pod's own entry."""
        own: dict[str, Any] = {"policy": "lru", "drainSeconds": 300}
        wanted = {"gpuMemoryUtilization": fraction, "restart": restart}
        own |= {name: value for name, value in wanted.items() if value is not None}
        document = {
            "schema": "evictune.io/knobs/v1",
            "revision": revision,
            "expires": (datetime.now(UTC) + timedelta(hours=1)).isoformat(),
            "default": {"policy": "lru"},
            "pods": {"chat-0": own},
        }
        self.put_knobs(json.dumps(document))

    def wait(self) -> int:
        """The exit code of what the container runs."""
        assert self._process is not None
        return self._process.wait(360)

    def kill_core(self) -> None:
        """What the kernel does to an engine core that takes more memory than there is."""
        pids = self.engine_pids()
        names = {pid: Path(f"/proc/{pid}/comm").read_text().strip() for pid in pids}
        (core,) = [pid for pid, name in names.items() if name.startswith("VLLM::Engine")]
        os.kill(core, signal.SIGKILL)

    @property
    def running(self) -> bool:
        assert self._process is not None
        return self._process.poll() is None

    def health(self) -> int:
        """What a readiness probe sees; 0 when nothing answers."""
        try:
            with urllib.request.urlopen(f"http://{self.address}/health", timeout=5) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def blocks(self) -> tuple[str, int]:
        """Fraction and number of blocks, as vLLM itself has them."""
        with urllib.request.urlopen(f"http://{self.address}/metrics", timeout=5) as page:
            text = page.read().decode()
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name == "vllm:cache_config_info":
                    labels = sample.labels
                    return labels["gpu_memory_utilization"], int(labels["num_gpu_blocks"])
        raise AssertionError("no vllm:cache_config_info")

    def attempt(self) -> tuple[str, str, str, str]:
        """State, fraction, revision and reason, as the plugin shows them."""
        deadline = time.monotonic() + 30
        while not (found := self.series("evictune_memory_attempt")):
            assert time.monotonic() < deadline, "the plugin shows no attempt"
            time.sleep(0.2)
        ((labels, _),) = found
        return labels["state"], labels["fraction"], labels["revision"], labels["reason"]

    def serve_until_confirmed(self) -> None:
        deadline = time.monotonic() + 60
        while self.attempt()[0] != "confirmed":
            assert time.monotonic() < deadline
            self.complete([5] * 40)
            time.sleep(0.5)


@pytest.fixture(scope="module")
def pod(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pod]:
    pod = Pod(tmp_path_factory.mktemp("pod"))
    yield pod
    pod.stop()


@pytest.fixture(scope="module")
def first_blocks(pod: Pod) -> int:
    """Started with another fraction than the manifest's, and confirmed."""
    pod.want(1, 0.14)
    pod.start()
    fraction, blocks = pod.blocks()
    assert fraction == "0.14"
    assert pod.series("evictune_memory_eligible") == [({"reason": "", "message": ""}, 1)]
    assert pod.attempt() == ("trying", "0.14", "1", "")
    pod.serve_until_confirmed()
    return blocks


def test_restart_on_request_drains_and_takes_the_new_fraction(pod: Pod, first_blocks: int) -> None:
    answers: list[Any] = []
    body = {"model": "tiny", "prompt": [6] * 40, "max_tokens": 1500, "ignore_eos": True}
    request = threading.Thread(target=lambda: answers.append(pod.post("/v1/completions", body)))
    request.start()
    connection = http.client.HTTPConnection(pod.address, timeout=120)
    connection.request("GET", "/version")  # kept open, as clients do
    connection.getresponse().read()
    pod.want(2, 0.16, restart="d-2")
    deadline = time.monotonic() + 30
    while pod.health() != 503:
        assert time.monotonic() < deadline, "never not ready"
        time.sleep(0.1)
    assert pod.running, "ended before the cluster could see it coming"
    headers = {"Content-Type": "application/json"}
    short = json.dumps({**body, "max_tokens": 4})
    connection.request("POST", "/v1/completions", short, headers)
    late = connection.getresponse()
    assert late.status == 200, "who comes before the Service knows is served"
    assert late.getheader("connection") == "close", "but is not to come again"
    late.read()
    request.join()
    assert answers[0]["usage"]["completion_tokens"] == 1500, "cut off"
    assert pod.wait() == 0

    pod.start()
    assert pod.attempt() == ("trying", "0.16", "2", "")
    fraction, blocks = pod.blocks()
    assert fraction == "0.16"
    assert blocks > first_blocks
    pod.serve_until_confirmed()
    assert pod.series("evictune_restart_info") == [({"token": "d-2", "state": "done"}, 1)]
    time.sleep(NOT_READY_SECONDS + 2)
    assert pod.health() == 200, "the same word restarts it once"


def test_a_fraction_that_cannot_start_fails_once(pod: Pod, first_blocks: int) -> None:
    pod.want(3, 0.97, restart="d-3")  # of the whole machine's memory: some is in use already
    assert pod.wait() == 0
    with pytest.raises(RuntimeError, match="engine did not start"):
        pod.start()
    pod.start()
    fraction, blocks = pod.blocks()
    assert fraction == str(MANIFEST)
    assert blocks < first_blocks
    assert pod.attempt() == ("dropped", "0.97", "3", "Dropped")
    assert pod.complete([5] * 40).text


def test_one_that_dies_before_it_is_confirmed_is_not_tried_again(
    pod: Pod, first_blocks: int
) -> None:
    pod.want(4, 0.12, restart="d-4")
    assert pod.wait() == 0
    pod.start()
    assert pod.attempt() == ("trying", "0.12", "4", "")
    assert 0 < pod.blocks()[1] < first_blocks
    assert pod.complete([5] * 40).text
    pod.kill_core()
    pod.wait()  # its code says nothing: vLLM ends with 0 here
    pod.start()
    assert pod.blocks()[0] == str(MANIFEST)
    assert pod.attempt() == ("dropped", "0.12", "4", "Dropped")
