"""What the play needs: a control plane, a node, the engine's Deployment, the operator."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from evictune.api.policy import GROUP, PLURAL, VERSION

from demo import manifests
from demo.constants import DEPLOYMENT, ENGINE, NAMESPACE, POLICY
from demo.model import cached_model
from demo.narrate import Narrator
from localcluster.controlplane import ControlPlane
from localcluster.processes import Program, free_port, wait_until
from localcluster.processnode import ProcessNode

ENGINE_SECONDS = 600.0
"""Longest wait for the engine; about 30 s on two idle cores."""


class StageError(RuntimeError):
    """Something did not come up; the message says what and where its log is."""


@dataclass(frozen=True)
class Engine:
    """The pod that serves, and what shows that it was not restarted."""

    pod: str
    uid: str
    address: str
    container: str
    restarts: int

    @property
    def url(self) -> str:
        """The OpenAI-compatible API."""
        return f"http://{self.address}:{ENGINE.port}"

    @property
    def plugin_url(self) -> str:
        """The plugin's own metrics page."""
        return f"http://{self.address}:{ENGINE.metrics_port}/metrics"

    @property
    def process(self) -> int:
        """The process id, which the node writes into the container's id."""
        return int(self.container.removeprefix("process://").split("-")[0])


class Stage:
    """A running cluster with one node. See `stage`."""

    def __init__(self, cluster: ControlPlane, node: ProcessNode, narrator: Narrator) -> None:
        self.cluster = cluster
        self.node = node
        self._narrator = narrator

    def prepare(self) -> None:
        """The namespace and the CRD."""
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        self.cluster.kubectl("apply", "-f", "-", input=_evictune("crd"))
        self.cluster.await_definition(f"{PLURAL}.{GROUP}")
        self._wait(self._has_service_account, 60, "the namespace has no service account")

    def apply(self, manifest: manifests.Manifest) -> None:
        """kubectl apply."""
        self.cluster.kubectl("apply", "-f", "-", input=yaml.safe_dump(manifest))

    @contextmanager
    def engine(self) -> Iterator[Engine]:
        """A new engine with an empty cache, wired by `evictune wire`; deleted afterwards."""
        manifest = yaml.safe_dump(manifests.deployment(cached_model()), sort_keys=False)
        wired = _evictune("wire", "-", "--plugin-installed", input=manifest)
        self.cluster.kubectl("apply", "-f", "-", input=wired)
        with self._narrator.working("Starting vLLM as a pod of the Deployment"):
            self._wait(lambda: self.find_engine() is not None, ENGINE_SECONDS, "vLLM is not ready")
        engine = self.find_engine()
        if engine is None:
            raise StageError(f"the engine's pod is no longer ready; {self._engine_log()}")
        yield engine
        with self._narrator.working("Stopping this engine"):
            self.cluster.kubectl(
                *("delete", "deployment", DEPLOYMENT, "-n", NAMESPACE, "--cascade=foreground")
            )

    def find_engine(self) -> Engine | None:
        """The Deployment's ready pod, if there is one."""
        for pod in self._pods():
            status = pod["status"]
            for container in status.get("containerStatuses", ()):
                if container["ready"] and container["name"] == "vllm":
                    return Engine(
                        pod["metadata"]["name"],
                        pod["metadata"]["uid"],
                        status["podIP"],
                        container["containerID"],
                        container["restartCount"],
                    )
        return None

    @contextmanager
    def operator(self, engine: Engine) -> Iterator[Program]:
        """`evictune run` as a process of this machine, and a Prometheus where there is one."""
        with self._prometheus(engine) as url:
            configuration = self._write(
                "evictune.yaml", manifests.operator_configuration(free_port(), free_port(), url)
            )
            command = [sys.executable, "-m", "evictune.cli", "run", "--log-format=json"]
            command += [f"--config={configuration}", f"--kubeconfig={self.cluster.kubeconfig}"]
            with self._program("evictune", command) as program:
                yield program

    @contextmanager
    def _prometheus(self, engine: Engine) -> Iterator[str]:
        """The URL of a Prometheus that scrapes the engine; "" if none is on the PATH."""
        binary = shutil.which("prometheus")
        if binary is None:
            self._narrator.say("No prometheus on the PATH: the operator scrapes the engine itself.")
            yield ""
            return
        configuration = self._write(
            "prometheus.yml", manifests.prometheus_configuration(engine.address, engine.pod)
        )
        address = f"127.0.0.1:{free_port()}"
        with (
            tempfile.TemporaryDirectory(prefix="evictune-demo-prometheus-") as data,
            self._program(
                "prometheus",
                [
                    *(binary, f"--config.file={configuration}", f"--storage.tsdb.path={data}"),
                    f"--web.listen-address={address}",
                ],
            ) as program,
        ):
            wait_until(lambda: _listens(address), [program], "Prometheus does not listen", 60)
            self._narrator.say(f"The operator reads a Prometheus: http://{address}")
            yield f"http://{address}"

    @contextmanager
    def _program(self, name: str, command: Sequence[str]) -> Iterator[Program]:
        log = self.cluster.directory / "logs" / f"{name}.log"
        program = Program(name, command, log, self.cluster.ledger.environment)
        try:
            yield program
        finally:
            program.kill()

    def _write(self, name: str, manifest: manifests.Manifest) -> Path:
        path = self.cluster.directory / name
        path.write_text(yaml.safe_dump(manifest))
        return path

    def policy(self) -> dict[str, Any]:
        """The EvictionPolicy as the API server holds it."""
        path = f"/apis/{GROUP}/{VERSION}/namespaces/{NAMESPACE}/{PLURAL}/{POLICY}"
        body: dict[str, Any] = json.loads(self.cluster.get(path))
        return body

    def _pods(self) -> list[dict[str, Any]]:
        body = json.loads(self.cluster.get(f"/api/v1/namespaces/{NAMESPACE}/pods"))
        items: list[dict[str, Any]] = body["items"]
        return [item for item in items if "deletionTimestamp" not in item["metadata"]]

    def _has_service_account(self) -> bool:
        found = self.cluster.kubectl(
            *("get", "serviceaccount", "default", "-n", NAMESPACE, "--ignore-not-found", "-o=name")
        )
        return bool(found.strip())

    def _wait(self, ready: Callable[[], bool], seconds: float, what: str) -> None:
        deadline = time.monotonic() + seconds
        while not ready():
            self._check_pods()
            if time.monotonic() > deadline:
                raise StageError(f"{what} after {seconds:.0f} s; {self._engine_log()}")
            time.sleep(0.5)

    def _check_pods(self) -> None:
        """A pod that has failed, or restarts, will not get ready by waiting."""
        for pod in self._pods():
            status = pod["status"]
            restarts = sum(each["restartCount"] for each in status.get("containerStatuses", ()))
            if status.get("phase") == "Failed" or restarts:
                raise StageError(
                    f"pod {pod['metadata']['name']} failed: {status.get('message', 'restarted')}; "
                    + self._engine_log()
                )

    def _engine_log(self) -> str:
        names = [pod["metadata"]["name"] for pod in self._pods()]
        logs = [self.node.log(NAMESPACE, name, "vllm") for name in names]
        text = [f"the end of {log}:\n{_tail(log)}" for log in logs if log.exists()]
        return "\n".join(text) or f"see {self.node.node_log}"


@contextmanager
def stage(directory: Path, narrator: Narrator) -> Iterator[Stage]:
    """A cluster for as long as the block lasts; its logs stay in `directory`."""
    with ExitStack() as stack:
        with narrator.working("Starting etcd, API server, controller manager and scheduler"):
            cluster = stack.enter_context(ControlPlane(directory, progress=narrator.say))
        with narrator.working("Starting a node whose pods are processes"):
            node = stack.enter_context(
                ProcessNode(cluster.kubeconfig, directory=directory / "node")
            )
        running = Stage(cluster, node, narrator)
        with narrator.working("kubectl apply: the CustomResourceDefinition of EvictionPolicy"):
            running.prepare()
        yield running


def _evictune(*arguments: str, input: str | None = None) -> str:
    """The output of an evictune command. Raises StageError with what it complained of."""
    result = subprocess.run(
        [sys.executable, "-m", "evictune.cli", *arguments],
        input=input,
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode != 0:
        raise StageError(f"evictune {' '.join(arguments)}: {result.stderr.strip()}")
    return result.stdout


def _listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=1):
            return True
    except OSError:
        return False


def _tail(log: Path, lines: int = 15) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
