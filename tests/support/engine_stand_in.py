"""`python -m tests.support.engine_stand_in`: what a pod runs where a test needs no real model.

Two ports, as an engine's pod has them. On 8000 stands the page of a real vLLM as it was captured
(tests/data/exposition); what the operator reads of it moves with time, as if requests were served.
On 9410 stands the plugin's page, by the plugin's own code: it reads the knob document from the
kubelet's mount, and Python finds it only in a pod that was wired (`evictune wire`). What is wanted
is in force at the next look.

`POST /load/NAME` changes what serving is like: a name of LOADS.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.support.engine_load import FAST, SLOW, Load

PAGE = Path(__file__).resolve().parents[1] / "data/exposition/vllm-0.32.0/engine-loaded.txt"
PORT = 8000
POLL_SECONDS = 0.2
# Worse in everything that the operator judges by, and no block protected in vain.
WORSE = replace(SLOW, ttft=((0.08, 20.0), (3.0, 20.0)), evicted=(("tel-safe", 50.0),))
# No better than stock LRU, because more is protected than fits.
CROWDED = replace(SLOW, evicted=(("protected", 50.0),))

# Serving under stock LRU, and under T-LRU whatever its values.
LOADS: Mapping[str, tuple[Load, Load]] = {
    "better": (SLOW, FAST),
    "worse": (SLOW, WORSE),
    "slow": (SLOW, CROWDED),
    "healthy": (FAST, FAST),
}
_SAMPLE = re.compile(r"^(vllm:\w+)(?:\{(.*)\})? \S+$")
_TOLD_APART_BY = re.compile(r'\b(?:le|source)="([^"]*)"')


class Serving:
    """Counters that move with time, and the captured page with their values in it."""

    def __init__(self, load: str, without: tuple[str, ...] = ()) -> None:
        self.loads = LOADS[load]
        self.stock = True
        self._counters: dict[str, float] = {}
        self._seen = time.monotonic()
        self._lock = threading.Lock()
        lines = PAGE.read_text().splitlines()
        self._lines = [line for line in lines if not line.startswith(without)]

    def now(self) -> dict[str, float]:
        """Every counter, after the time since the last look has passed."""
        with self._lock:
            moment = time.monotonic()
            passed, self._seen = moment - self._seen, moment
            for name, rate in _rates(self.load):
                self._counters[name] = self._counters.get(name, 0.0) + rate * passed
            return dict(self._counters)

    @property
    def load(self) -> Load:
        """What serving is like now."""
        return self.loads[0 if self.stock else 1]

    def page(self) -> str:
        """The captured page; what is not driven stands as it was captured."""
        values = self.now() | {
            "vllm:num_requests_running": self.load.running,
            "vllm:num_requests_waiting": self.load.waiting,
            "vllm:kv_cache_usage_perc": self.load.kv_usage,
        }
        slow = {key: values[key] for key in values if key.startswith("ttft ")}
        return "".join(_written(line, values, slow) + "\n" for line in self._lines)


def _rates(load: Load) -> list[tuple[str, float]]:
    """What every counter grows by in a second."""
    requests, hits = load.requests, load.queried - load.computed
    rates = {f"ttft {seconds}": rate for seconds, rate in load.ttft}
    rates |= {
        "vllm:time_to_first_token_seconds_sum": sum(s * rate for s, rate in load.ttft),
        "vllm:num_preemptions_total": load.preemptions,
        "vllm:prefix_cache_queries_total": load.queried,
        "vllm:prefix_cache_hits_total": hits,
        "vllm:prompt_tokens_total": load.queried,
        "vllm:prompt_tokens_by_source_total local_compute": load.computed,
        "vllm:prompt_tokens_by_source_total local_cache_hit": hits,
        "vllm:request_prompt_tokens_sum": load.queried,
        "vllm:request_queue_time_seconds_sum": requests * 0.001,
        "vllm:request_prefill_time_seconds_sum": load.computed / 5000.0,
        "vllm:request_prefill_kv_computed_tokens_sum": load.computed,
    }
    for name in (
        "time_to_first_token_seconds",
        "request_prompt_tokens",
        "request_queue_time_seconds",
        "request_prefill_time_seconds",
        "request_prefill_kv_computed_tokens",
    ):
        rates[f"vllm:{name}_count"] = requests
    rates |= {f"evicted {region}": rate for region, rate in load.evicted}
    # Whatever need not be computed when all goes well had been cached before.
    rates["recomputed"] = load.computed - FAST.computed
    return list(rates.items())


def _written(line: str, values: Mapping[str, float], ttft: Mapping[str, float]) -> str:
    """A line of the page with today's value."""
    found = _SAMPLE.match(line)
    if found is None:
        return line
    name, labels = found[1], found[2] or ""
    which = _TOLD_APART_BY.search(labels)
    if name == "vllm:time_to_first_token_seconds_bucket" and which is not None:
        bound = float(which[1])
        value = sum(n for key, n in ttft.items() if float(key.removeprefix("ttft ")) <= bound)
        return _with(line, float(int(value)))
    key = f"{name} {which[1]}" if which is not None else name
    return _with(line, values[key]) if key in values else line


def _with(line: str, value: float) -> str:
    return f"{line.rpartition(' ')[0]} {value}"


def start_plugin(serving: Serving) -> None:
    """The plugin's page, and what is wanted brought into force. Raises ModuleNotFoundError."""
    from evictune_policies.engine.metrics import MetricsPort, Report, ReportDirectory
    from evictune_policies.engine.source import KnobSource

    pod = os.environ["EVICTUNE_POD_NAME"]
    source = KnobSource(Path(os.environ["EVICTUNE_KNOBS_DIR"]), pod)
    wanted = source.poll(time.time())
    serving.stock = wanted.knobs.policy == "lru"

    def report() -> Report:
        counters, refusal, knobs = serving.now(), source.refusal, wanted.knobs
        return Report(
            engine="0",
            policy=knobs.policy,
            xi_tokens=knobs.xi_tokens,
            q_hat_tokens=knobs.q_hat_tokens,
            revision=wanted.revision,
            evicted={
                region: int(counters.get(f"evicted {region}", 0.0))
                for region in ("lru", "tel-safe", "protected")
            },
            recomputed_tokens=int(counters.get("recomputed", 0.0)),
            refused=dict(source.refused),
            refusal=(refusal.reason, refusal.message) if refusal else None,
        )

    port = MetricsPort("0.0.0.0:9410", report, ReportDirectory(pod))

    def watch() -> None:
        nonlocal wanted
        while True:
            wanted = source.poll(time.time())
            serving.now()  # until here under what was in force
            serving.stock = wanted.knobs.policy == "lru"
            port.tick()
            time.sleep(POLL_SECONDS)

    threading.Thread(target=watch, name="plugin", daemon=True).start()


def handler(serving: Serving) -> Callable[..., BaseHTTPRequestHandler]:
    """GET /metrics and /health, POST /load/NAME."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(serving.page() if self.path == "/metrics" else "")

        def do_POST(self) -> None:
            serving.now()  # until here at the old rates
            serving.loads = LOADS[self.path.removeprefix("/load/")]
            self._answer("")

        def _answer(self, text: str) -> None:
            body = text.encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Scrapes are many."""

    return Handler


def main() -> None:
    """Serve until SIGTERM: process 1 of a container has no default for it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--load", choices=sorted(LOADS), default="better")
    parser.add_argument("--without", action="append", default=[], metavar="PREFIX")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    serving = Serving(options.load, tuple(options.without))
    try:
        start_plugin(serving)
        print("wired", flush=True)
    except ModuleNotFoundError as error:
        print(f"not wired: {error}", file=sys.stderr, flush=True)
    ThreadingHTTPServer(("0.0.0.0", PORT), handler(serving)).serve_forever()


if __name__ == "__main__":
    main()
