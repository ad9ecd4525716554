"""A real Prometheus on this machine, which scrapes the pods of a test's cluster.

Debian's build has no discovery by the Kubernetes API: the targets come by file.
"""

from __future__ import annotations

import json
import os
import shutil
import urllib.parse
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from localcluster.processes import Program, free_port, wait_until
from tests.support.local_http import answers, opened

START_SECONDS = 30.0
TARGETS = "targets.json"
POD_LABELS = {"namespace": "namespace", "pod": "name"}


@dataclass
class Prometheus:
    """A running Prometheus; `url` works from this machine and from the node's pods."""

    url: str
    directory: Path
    _command: list[str]
    _program: Program | None = None

    def start(self) -> None:
        """Run it, with what it has stored; returns when it is ready."""
        log = self.directory / "prometheus.log"
        self._program = Program("prometheus", self._command, log, os.environ)
        ready = f"{self.url}/-/ready"
        wait_until(
            lambda: answers(ready), [self._program], "prometheus is not ready", START_SECONDS
        )

    def stop(self) -> None:
        """Kill it, unless it is stopped."""
        if self._program is not None:
            self._program.kill()
            self._program = None

    def scrape(self, pods: Iterable[dict[str, Any]]) -> None:
        """Scrape every port that these pods declare, labelled as by discovery, and nothing else."""
        targets = [
            {
                "targets": [f"{pod['status']['podIP']}:{port}"],
                "labels": {key: pod["metadata"][field] for key, field in POD_LABELS.items()},
            }
            for pod in pods
            for port in _ports(pod)
        ]
        partial = self.directory / "targets.partial"
        partial.write_text(json.dumps(targets))
        partial.rename(self.directory / TARGETS)

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The instant vector of an expression."""
        query = urllib.parse.urlencode({"query": expression})
        found: list[dict[str, Any]] = self._get(f"query?{query}")["result"]
        return found

    def rules(self) -> list[dict[str, Any]]:
        """Every rule, as the API shows it."""
        return [rule for group in self._get("rules")["groups"] for rule in group["rules"]]

    def _get(self, path: str) -> dict[str, Any]:
        with opened(f"{self.url}/api/v1/{path}") as answer:
            data: dict[str, Any] = json.load(answer)["data"]
        return data


@contextmanager
def prometheus(
    address: str,
    directory: Path,
    interval: str,
    rules: Path | None = None,
    port: int | None = None,
    lookback: str = "5m",
) -> Iterator[Prometheus]:
    """Run it for as long as the `with` block lasts; it listens on `address`.

    `interval`: of scrapes and, where there is a file of rules, of their evaluation.
    Blocks that lie in the directory's `data` are served; `lookback`: for how long a series still
    counts after its last sample, where no scrape has told that it ended.
    """
    binary = shutil.which("prometheus")
    assert binary, "prometheus is not on the PATH: apt-get install --yes prometheus"
    directory.mkdir(exist_ok=True)
    job = {
        "job_name": "pods",
        "scrape_interval": interval,
        "scrape_timeout": interval,
        # As the chart's PodMonitor has it: the operator's label `namespace` is the policy's.
        "honor_labels": True,
        "file_sd_configs": [{"files": [str(directory / TARGETS)]}],
    }
    configuration = {
        "global": {"evaluation_interval": interval},
        "rule_files": [str(rules)] if rules else [],
        "scrape_configs": [job],
    }
    (directory / "prometheus.yml").write_text(yaml.safe_dump(configuration))
    listen = f"{address}:{port or free_port(address)}"
    command = [
        binary,
        f"--config.file={directory}/prometheus.yml",
        f"--storage.tsdb.path={directory}/data",
        f"--web.listen-address={listen}",
        f"--query.lookback-delta={lookback}",
    ]
    running = Prometheus(f"http://{listen}", directory, command)
    try:
        running.start()
        yield running
    finally:
        running.stop()


def _ports(pod: dict[str, Any]) -> list[int]:
    containers = pod["spec"]["containers"]
    return [port["containerPort"] for each in containers for port in each.get("ports", ())]
