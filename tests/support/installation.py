"""The operator in a cluster as its users have it: the chart, by the commands of the README."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import yaml

from localcluster.node import Node
from localcluster.paths import SOURCE_ROOT
from localcluster.processes import free_port
from tests.support.images import operator_image, plugin_image
from tests.support.local_http import opened
from tests.support.objects import Object, Objects
from tests.support.operator_scene import DEFINITION
from tests.support.shell import Shell
from tests.support.walkthrough import steps

README = SOURCE_ROOT / "README.md"
GUIDE = SOURCE_ROOT / "docs/how-to/install.md"
NAME = NAMESPACE = "evictune"
_ABOUT = yaml.safe_load((SOURCE_ROOT / "charts/evictune/Chart.yaml").read_text())
CHART = f"{_ABOUT['name']}-{_ABOUT['version']}"
# Where the documents have them; the node has what this checkout's Dockerfile makes.
REPOSITORY = "registry.example/evictune"
IMAGE = f"{REPOSITORY}:{_ABOUT['appVersion']}"
PLUGIN_IMAGE = f"{REPOSITORY}-plugin:{_ABOUT['appVersion']}"
# Which pods are whose.
_ROLE = "app.kubernetes.io/name"
TEST_PODS = f"{_ROLE}={NAME}-test"
# What the stand-in's pods run; known as an engine by the repository's name.
ENGINE_IMAGE = "localhost/stand-in/vllm:0.32.0"


class Installation:
    """The release `evictune` in the namespace of that name, there or not."""

    def __init__(self, shell: Shell, node: Node) -> None:
        self.shell = shell
        self.node = node
        self.objects = Objects(shell.cluster, NAMESPACE)
        for image, name in ((operator_image(), IMAGE), (plugin_image(), PLUGIN_IMAGE)):
            node.load_image(image.archive, image.reference)
            node.tag_image(image.reference, name)
        node.tag_image(IMAGE, ENGINE_IMAGE)
        # Where a Prometheus may come up later: the source `prometheus`.
        self.prometheus_port = free_port(node.host_address)

    @property
    def source(self) -> str:
        """Options of Helm that define the source `prometheus`."""
        url = f"http://{self.node.host_address}:{self.prometheus_port}"
        source = "sources.prometheus.prometheus"
        return f"--set {source}.url={url},{source}.timeout=2s"

    def chart(self) -> str:
        """Name and version of the chart that is installed; empty if none is."""
        found = self.objects.find("deployment", NAME)
        return str(found["metadata"]["labels"]["helm.sh/chart"]) if found else ""

    def ensure(self) -> None:
        """Install the chart as the README says, or upgrade an older one, unless it is there."""
        chart = self.chart()
        if not chart:
            (step,) = steps(README, "Install")
            self.shell.run(step.lines[0])
        elif chart != CHART:
            (step,) = steps(GUIDE, "Upgrade")
            self.shell.run(step.text)
        self.await_operator()

    def ensure_source(self) -> None:
        """Give the release the source `prometheus`, unless it has it."""
        values = json.loads(self.shell.run(f"helm get values {NAME} -n {NAMESPACE} -o json"))
        if "prometheus" not in (values.get("sources") or {}):
            (step,) = steps(GUIDE, "Upgrade")
            self.shell.run(f"{step.text} {self.source}")
            self.await_operator()

    def await_operator(self) -> None:
        """Wait for the rollout, and for the definition to be served."""
        self.shell.cluster.await_definition(DEFINITION)
        wait_for("the operator rolled out", lambda: self.objects.rolled_out(NAME), 120.0)

    def uninstall(self) -> None:
        """`helm uninstall`, if it is there; returns when the operator's pod is gone.

        What Helm leaves is deleted too: pods of `helm test`, and the Lease, which the next operator
        would wait for to run out.
        """
        if self.chart():
            self.shell.run(f"helm uninstall {NAME} -n {NAMESPACE} --wait")
        self.shell.run(f"kubectl delete pods -n {NAMESPACE} -l {TEST_PODS}")
        wait_for("the operator gone", lambda: not self.objects.all("pod", leaving=True))
        self.shell.run(f"kubectl delete lease {NAME} -n {NAMESPACE} --ignore-not-found")

    def pod(self) -> Object:
        """The operator's one pod that is not leaving."""
        pods = self.objects.all("pod")
        (found,) = (each for each in pods if each["metadata"]["labels"][_ROLE] == NAME)
        return found

    def page(self) -> str:
        """The operator's own series, as its pod shows them."""
        with opened(f"http://{self.pod()['status']['podIP']}:9090/metrics") as answer:
            text: str = answer.read().decode()
        return text

    def requests(self) -> list[Object]:
        """What the operator's service account has asked of the API server, by the audit log."""
        user = f"system:serviceaccount:{NAMESPACE}:{NAME}"
        events = self.shell.cluster.audit_events()
        return [each for each in events if each["user"]["username"] == user]


def wait_for(what: str, reached: Callable[[], Any], seconds: float = 60.0) -> Any:
    """The first true answer. Raises AssertionError saying what did not come about."""
    deadline = time.monotonic() + seconds
    while not (found := _tried(reached)):
        assert time.monotonic() < deadline, f"{what}: not within {seconds:g} s; now {found!r}"
        time.sleep(0.25)
    return found


def _tried(reached: Callable[[], Any]) -> Any:
    """What it answers; of an object that is not there, the error's words are no answer."""
    try:
        return reached()
    except LookupError:
        return None
