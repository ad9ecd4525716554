"""One policy's trouble is its own: a missing target, a source that hangs, a source that errs.

Measured from the operator's own series: the first policy keeps its interval within a tenth. That
needs a machine on which nothing else runs: a scheduler that gets no processor keeps no interval.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from localcluster.controlplane import ControlPlane
from tests.support.fake_engines import FakeDeployment
from tests.support.operator_process import OperatorProcess, eventually
from tests.support.operator_scene import Scene, install_crd, policy
from tests.support.server import Server

INTERVAL = 2.0
# A hiccup of the machine costs one tick: half of the tenth.
WATCHED_TICKS = 20


@contextmanager
def hanging_server() -> Iterator[str]:
    """Accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@contextmanager
def failing_server() -> Iterator[str]:
    """Answers 500 to everything."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(500, "broken")

        do_POST = do_GET  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.mark.quiet
def test_a_policy_keeps_its_interval_beside_broken_ones(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    install_crd(control_plane)
    with (
        Scene(control_plane) as scene,
        hanging_server() as hanging,
        failing_server() as failing,
        FakeDeployment(scene.api, scene.namespace, "healthy"),
        FakeDeployment(scene.api, scene.namespace, "unread"),
        FakeDeployment(scene.api, scene.namespace, "refused"),
    ):
        sources = {
            "default": {"direct": {"timeout": "1s"}},
            "hanging": {"prometheus": {"url": hanging, "timeout": "5s"}},
            "failing": {"prometheus": {"url": failing, "timeout": "5s"}},
        }
        behavior = {"interval": f"{INTERVAL:g}s"}
        broken = {"unread": "hanging", "refused": "failing"}
        for target, source in broken.items():
            metrics = {"source": source}
            scene.create(policy(target, target, metrics=metrics, behavior=behavior))
        scene.create(policy("missing", "nowhere", behavior=behavior))
        scene.create(policy("healthy", "healthy", mode="Observe", behavior=behavior))
        arguments = ("--namespace", scene.namespace)
        kubeconfig = control_plane.kubeconfig
        with OperatorProcess(tmp_path, kubeconfig, sources, *arguments) as operator:
            eventually(lambda: ticks(operator, scene, "healthy"), "a first tick")
            interval = mean_interval(operator, scene, "healthy")
            told_of = {name: scene.condition(name, "MetricsAvailable") for name in broken}
            failures = failed(operator, scene, "healthy")
            assert operator.alive()
        assert interval == pytest.approx(INTERVAL, rel=0.1)
        assert failures == 0
        assert told_of["unread"][:2] == ("False", "SourceUnavailable")
        assert told_of["refused"][:2] == ("False", "SourceUnavailable")
        assert scene.condition("missing", "TargetFound")[:2] == ("False", "TargetMissing")


def mean_interval(operator: OperatorProcess, scene: Scene, name: str) -> float:
    """Seconds from tick to tick, between the ends of two of them."""

    def after(count: float) -> tuple[float, float]:
        """When the next tick was over, and how many there were by then."""
        found = eventually(lambda: _above(ticks(operator, scene, name), count), "a tick")
        return time.monotonic(), found

    began, first = after(ticks(operator, scene, name))
    ended, last = after(first + WATCHED_TICKS - 1)
    return (ended - began) / (last - first)


def _above(count: float, limit: float) -> float | None:
    return count if count > limit else None


def ticks(operator: OperatorProcess, scene: Scene, name: str) -> float:
    """How many ticks of a policy ended without an error."""
    labels = {"namespace": scene.namespace, "policy": name}
    return operator.value("evictune_tick_seconds_count", **labels) or 0.0


def failed(operator: OperatorProcess, scene: Scene, name: str) -> float:
    """How many ticks of a policy ended in an error."""
    labels = {"namespace": scene.namespace, "policy": name}
    return operator.value("evictune_tick_failures_total", **labels) or 0.0
