"""A real Prometheus on this machine, which finds and scrapes the pods of a test's cluster."""

from __future__ import annotations

import json
import os
import shutil
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from localcluster.controlplane import ControlPlane
from localcluster.processes import Program, free_port, wait_until

START_SECONDS = 30.0


@dataclass(frozen=True)
class Prometheus:
    """A running Prometheus; `url` works from this machine and from the node's pods."""

    url: str
    program: Program

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The instant vector of an expression."""
        query = urllib.parse.urlencode({"query": expression})
        with _open(f"{self.url}/api/v1/query?{query}") as answer:
            found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        return found


@contextmanager
def prometheus(
    cluster: ControlPlane, address: str, directory: Path, namespaces: list[str], interval: str
) -> Iterator[Prometheus]:
    """Scrape every declared port of every pod of `namespaces`; listen on `address`."""
    binary = shutil.which("prometheus")
    assert binary, "prometheus is not on the PATH: apt-get install --yes prometheus"
    directory.mkdir()
    (directory / "token").write_text(cluster.token)
    configuration = _configuration(cluster, directory, namespaces, interval)
    (directory / "prometheus.yml").write_text(yaml.safe_dump(configuration))
    port = free_port(address)
    program = Program(
        "prometheus",
        [
            binary,
            f"--config.file={directory}/prometheus.yml",
            f"--storage.tsdb.path={directory}/data",
            f"--web.listen-address={address}:{port}",
        ],
        directory / "prometheus.log",
        os.environ,
    )
    running = Prometheus(f"http://{address}:{port}", program)
    try:
        wait_until(lambda: _ready(running), [program], "prometheus is not ready", START_SECONDS)
        yield running
    finally:
        program.kill()


def _configuration(
    cluster: ControlPlane, directory: Path, namespaces: list[str], interval: str
) -> dict[str, Any]:
    """As in the field: discovered by the Kubernetes API, labelled with namespace and pod."""
    discovery = {
        "role": "pod",
        "api_server": cluster.server,
        "authorization": {"credentials_file": str(directory / "token")},
        "tls_config": {"ca_file": str(cluster.ca_file)},
        "namespaces": {"names": namespaces},
    }
    relabel = [
        {
            "source_labels": ["__meta_kubernetes_pod_container_init"],
            "regex": "true",
            "action": "drop",
        },
        {"source_labels": ["__meta_kubernetes_namespace"], "target_label": "namespace"},
        {"source_labels": ["__meta_kubernetes_pod_name"], "target_label": "pod"},
        {"source_labels": ["__meta_kubernetes_pod_container_name"], "target_label": "container"},
    ]
    job = {
        "job_name": "pods",
        "scrape_interval": interval,
        "scrape_timeout": interval,
        "kubernetes_sd_configs": [discovery],
        "relabel_configs": relabel,
    }
    return {"scrape_configs": [job]}


def _ready(running: Prometheus) -> bool:
    try:
        with _open(f"{running.url}/-/ready") as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def _open(url: str) -> Any:
    """No proxy from the environment: these addresses mean something on this machine only."""
    return urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=10)
