"""`python -m tests.support.fleet_stand_in`: Prometheus and a fleet's plugins, as one process.

Faked at the edge of the protocol, so that an operator with thousands of engines can be measured on
one machine: it answers the operator's own queries with one series (or one for each bucket) of every
pod, and every address of this machine's loopback with the plugin's page of a stock engine.

Reads {"pods": [[namespace, pod], ...]} as PUT /pods; GET /asked gives the number of queries by
metric name. Prints its port when it listens.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import time
from collections import Counter
from collections.abc import Iterator

from aiohttp import web
from evictune.observe.dialects import MEANINGS, Engine, Kind, Measure, names_of

WINDOW = 600.0
# vLLM's own bounds of time to first token, seconds (vllm/v1/metrics/loggers.py).
TTFT_BOUNDS = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    *(20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
# What an engine in good health does within the window; rates are multiplied by WINDOW below.
_VALUES = {
    Measure.KV_USAGE: 0.6,
    Measure.RUNNING: 8.0,
    Measure.WAITING: 0.0,
    Measure.PREEMPTIONS: 0.0,
    Measure.CACHE_QUERIES: 2000 * WINDOW,
    Measure.CACHE_HITS: 1500 * WINDOW,
    Measure.QUEUE_SECONDS: 0.002 * WINDOW,
    Measure.QUEUED_REQUESTS: 2 * WINDOW,
    Measure.PREFILL_SECONDS: 0.1 * WINDOW,
    Measure.PREFILL_TOKENS: 500 * WINDOW,
    Measure.COMPUTED_TOKENS: 500 * WINDOW,
    Measure.PROMPT_TOKENS: 2000 * WINDOW,
    Measure.PROMPTS: 2 * WINDOW,
}
_FIRST_NAME = re.compile(r'"series", "([^"]+)"')
# Answers differ a little from round to round, as those of real engines do.
_VARIANTS = 3


class StandIn:
    """The state behind both pages."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self._answers: dict[str, list[bytes]] = {}
        self._started = time.monotonic()

    async def take_pods(self, request: web.Request) -> web.Response:
        """Answers for these pods from now on."""
        pods = [tuple(each) for each in (await request.json())["pods"]]
        for measure in Measure:
            name = names_of(measure, Engine.VLLM)[0].base
            variants = [_vector(measure, name, pods, n) for n in range(_VARIANTS)]
            self._answers[name] = variants
        return web.Response()

    async def query(self, request: web.Request) -> web.Response:
        """`/api/v1/query`."""
        found = _FIRST_NAME.search(request.query["query"])
        name = found[1] if found else "?"
        self.asked[name] += 1
        answers = self._answers.get(name)
        body = answers[self.asked[name] % _VARIANTS] if answers else _answer([])
        return web.Response(body=body, content_type="application/json")

    async def tell_asked(self, _: web.Request) -> web.Response:
        """How often each metric was asked for."""
        return web.json_response(self.asked)

    async def plugin(self, _: web.Request) -> web.Response:
        """The plugin's page of an engine under stock LRU."""
        evicted = int(50 * (time.monotonic() - self._started))
        return web.Response(
            text='evictune_policy_info{policy="lru",xi_tokens="",q_hat_tokens="",revision="0",'
            'engine="0"} 1\n'
            'evictune_engine_eligible{engine="0",reason=""} 1\n'
            f'evictune_evicted_blocks_total{{engine="0",region="lru"}} {evicted}\n'
            'evictune_evicted_blocks_total{engine="0",region="tel-safe"} 0\n'
            'evictune_evicted_blocks_total{engine="0",region="protected"} 0\n'
            'evictune_recomputed_tokens_total{engine="0"} 0\n'
        )


def _vector(measure: Measure, name: str, pods: list[tuple[str, str]], variant: int) -> bytes:
    return _answer([each for pod in pods for each in _series(measure, name, pod, variant)])


def _series(
    measure: Measure, name: str, pod: tuple[str, str], variant: int
) -> Iterator[dict[str, object]]:
    labels = {"namespace": pod[0], "pod": pod[1], "engine": "0", "series": name}
    if MEANINGS[measure].kind is Kind.BUCKETS:
        for bound in (*TTFT_BOUNDS, "+Inf"):
            share = 0.0 if bound != "+Inf" and float(bound) < 0.1 else 1.0
            yield _element(labels | {"le": str(bound)}, (1200 + variant) * share)
        return
    if measure is Measure.CACHE_CONFIG:
        yield _element(labels | {"block_size": "16", "num_gpu_blocks": "20000"}, 1.0)
        return
    yield _element(labels, _VALUES[measure] * (1 + variant / 500))


def _element(labels: dict[str, str], value: float) -> dict[str, object]:
    return {"metric": labels, "value": [1_796_000_000, str(value)]}


def _answer(result: list[dict[str, object]]) -> bytes:
    data = {"resultType": "vector", "result": result}
    return json.dumps({"status": "success", "data": data}, separators=(",", ":")).encode()


def _loopback_socket() -> socket.socket:
    """Listens on every address of 127.0.0.0/8, and on no other."""
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo")
    listening.bind(("0.0.0.0", 0))
    listening.listen(1024)
    return listening


async def _serve() -> None:
    stand_in = StandIn()
    application = web.Application(client_max_size=2**26)
    application.add_routes(
        [
            web.put("/pods", stand_in.take_pods),
            web.get("/asked", stand_in.tell_asked),
            web.get("/metrics", stand_in.plugin),
            web.get("/api/v1/query", stand_in.query),
        ]
    )
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    listening = _loopback_socket()
    await web.SockSite(runner, listening).start()
    print(listening.getsockname()[1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve())
