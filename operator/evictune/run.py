"""`evictune run`: the parts put together, and Kopf started."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import socket
import sys
from asyncio import AbstractEventLoop as EventLoop
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import kopf
import uvloop
from kubernetes import client
from prometheus_client import start_http_server

from evictune.api.sources import OperatorConfiguration
from evictune.election import Election, LeaseCalls, TimedLeaseLock, own_identity, own_namespace
from evictune.handlers import Follower, build_registry
from evictune.index import PolicyIndex
from evictune.kube import KubeApi, load_configuration
from evictune.logs import set_up_logging
from evictune.loop import Clock, Scheduler
from evictune.observe.observer import Observer
from evictune.observe.target import ApiClusterReader
from evictune.operator_metrics import OperatorMetrics
from evictune.tick import Ticker
from evictune.watch import KeptRunning

# Calls to the API server under way at once, of all policies together; observing has its own.
API_THREADS = 8
API_CONNECTIONS = 2 * API_THREADS

# An answer about a fleet is a million small objects, none of them in a circle. Looking for circles
# after every 700 new ones, and through all that is kept, cost half of the time of reading it.
GARBAGE_THRESHOLDS = (50_000, 20, 50)
# Seconds until a thread that reads such an answer lets the event loop have its turn.
SWITCH_INTERVAL = 0.001

log = logging.getLogger(__name__)


def run_operator(
    configuration: OperatorConfiguration,
    kubeconfig: str | None,
    namespaces: Sequence[str],
    log_format: str,
    *,
    identity: str | None = None,
    verbose: bool = False,
) -> None:
    """Run until a signal. `identity`: of the lease's holder; default: the pod's name.

    Raises ConfigException where no cluster is known, OSError for a port, LeaseLostError when
    another operator took the lease.
    """
    set_up_logging(log_format, verbose=verbose)
    gc.set_threshold(*GARBAGE_THRESHOLDS)
    sys.setswitchinterval(SWITCH_INTERVAL)
    chosen = tuple(namespaces) or configuration.namespaces
    metrics = OperatorMetrics()
    _serve_metrics(configuration.metrics_address, metrics)
    _require_free("livenessAddress", configuration.liveness_address)
    election = _election(configuration, kubeconfig, identity)
    metrics.leading.set_function(lambda: float(election.leading()))
    api = KubeApi(
        load_configuration(kubeconfig), connections=API_CONNECTIONS, may_write=election.leading
    )
    try:
        with ThreadPoolExecutor(API_THREADS, thread_name_prefix="api") as pool:
            uvloop.run(
                _serve(
                    lambda: _follower(api, configuration, metrics, pool, chosen),
                    election,
                    _Watching(configuration.liveness_address, kubeconfig, chosen),
                )
            )
    finally:
        # Not before every call under way has ended: the next operator acts at once.
        election.give_up()
    if election.lost is not None:
        raise election.lost


@dataclass(frozen=True)
class _Watching:
    """What Kopf is run with."""

    liveness_address: str
    kubeconfig: str | None
    namespaces: Sequence[str]

    async def run(self, follower: Follower, home: EventLoop, stop: asyncio.Event) -> None:
        """Kopf, in this event loop, for a follower of another one: `home`."""

        async def on_event(body: Mapping[str, Any], deleted: bool) -> None:
            delivered = asyncio.run_coroutine_threadsafe(follower.on_event(body, deleted), home)
            await asyncio.wrap_future(delivered)

        registry = build_registry(
            on_event,
            lambda: connection_info(load_configuration(self.kubeconfig)),
            follower.check,
            namespaced=bool(self.namespaces),
        )
        await kopf.operator(
            registry=registry,
            settings=kopf.OperatorSettings(),
            namespaces=self.namespaces,
            clusterwide=not self.namespaces,
            standalone=True,
            liveness_endpoint=f"http://{self.liveness_address}/healthz",
            stop_flag=stop,
        )


async def _serve(
    make_follower: Callable[[], Follower], election: Election, watching: _Watching
) -> None:
    """Until a signal comes or the lease is lost."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, election.over.set)
    follower = make_follower()
    kept = KeptRunning(lambda stop: watching.run(follower, loop, stop), follower.relist)
    follower.found = kept.renew
    follower.start(election.won())
    running = asyncio.create_task(kept.run(), name="watch policies")
    election.start()
    try:
        await election.over.wait()
        log.info("stopping")
    finally:
        kept.stop()
        await running
        await follower.stop()


def _election(
    configuration: OperatorConfiguration, kubeconfig: str | None, identity: str | None
) -> Election:
    lock = TimedLeaseLock(
        configuration.lease_namespace or own_namespace(),
        configuration.lease_name,
        identity or own_identity(),
        LeaseCalls(load_configuration(kubeconfig)),
    )
    return Election(lock)


def _follower(
    api: KubeApi,
    configuration: OperatorConfiguration,
    metrics: OperatorMetrics,
    pool: ThreadPoolExecutor,
    namespaces: Sequence[str],
) -> Follower:
    """The operator's parts; made inside the event loop that they belong to."""
    clock = Clock()
    index = PolicyIndex()
    observer = Observer(ApiClusterReader(api), configuration.sources, clock.monotonic)
    ticker = Ticker(api, observer, index, metrics, pool, clock.wall, configuration.fleet_mode)
    scheduler = Scheduler(ticker.tick, metrics, clock)
    log.info("following policies in %s", ", ".join(namespaces) or "all namespaces")
    return Follower(api, index, scheduler, metrics, pool, namespaces, clock, observer.close)


def connection_info(configuration: client.Configuration) -> kopf.ConnectionInfo:
    """The same connection in Kopf's words. Called again when a token is no longer accepted."""
    header: str = configuration.get_api_key_with_prefix("BearerToken") or ""
    scheme, _, token = header.rpartition(" ")
    return kopf.ConnectionInfo(
        server=configuration.host,
        ca_path=configuration.ssl_ca_cert,
        insecure=not configuration.verify_ssl,
        username=configuration.username or None,
        password=configuration.password or None,
        scheme=scheme or None,
        token=token or None,
        certificate_path=configuration.cert_file,
        private_key_path=configuration.key_file,
    )


def _serve_metrics(address: str, metrics: OperatorMetrics) -> None:
    """Serve /metrics at HOST:PORT."""
    _require_free("metricsAddress", address)
    host, port = _split(address)
    start_http_server(port, host, registry=metrics.registry)


def _require_free(field: str, address: str) -> None:
    """Raises OSError, naming the field, for HOST:PORT where nothing can listen now.

    Kopf tells of a port that is taken by a traceback, and only after everything was started.
    """
    host, port = _split(address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        raise OSError(f"{field} {address}: {error.strerror or error}") from error


def _split(address: str) -> tuple[str, int]:
    """Host and port of an address whose form was checked when the configuration was parsed."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)
