"""The plugin's Prometheus series: one port a pod, whatever its number of engine ranks.

Every rank reports for itself. The rank that could bind the port serves all; the others hand their
reports over as small files in a directory of the pod, renamed into place, and keep trying to bind:
when the serving process dies, the next one takes the port. Files of dead processes are ignored.
"""

import json
import logging
import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector

logger = logging.getLogger("vllm.evictune.metrics")

STALE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Report:
    """What one engine rank has to say. Token counts are None under plain LRU.

    Attributes:
        engine: Label value, as in vLLM's own series.
        ineligible: Why the engine stays with stock LRU whatever is wanted; empty when it does not.
        evicted: Blocks with a hash evicted so far, by region.
        recomputed_tokens: Prompt tokens computed again so far, because they were evicted.
        change_seconds: Time the scheduler's thread spent applying changes, ever.
        changes: Number of these changes.
        refused: Documents refused so far, by reason.
        refusal: Reason and message, while the document now on disk is refused.
    """

    engine: str
    policy: str
    xi_tokens: int | None
    q_hat_tokens: int | None
    revision: int
    ineligible: str = ""
    evicted: dict[str, int] = field(default_factory=dict)
    recomputed_tokens: int = 0
    change_seconds: float = 0.0
    changes: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    refusal: tuple[str, str] | None = None


def families(reports: Iterable[Report]) -> list[Metric]:
    """Build the series of all ranks."""
    info = GaugeMetricFamily(
        "evictune_policy_info",
        "Eviction policy in force in the scheduler; 1. Revision 0: there is no valid document.",
        labels=["policy", "xi_tokens", "q_hat_tokens", "revision", "engine"],
    )
    eligible = GaugeMetricFamily(
        "evictune_engine_eligible",
        "1: the engine takes other policies than stock LRU. 0: it does not, for this reason.",
        labels=["engine", "reason"],
    )
    evicted = CounterMetricFamily(
        "evictune_evicted_blocks",
        "Cached blocks evicted, by the region of the free queue they were in: lru (stock order), "
        "tel-safe, protected.",
        labels=["engine", "region"],
    )
    recomputed = CounterMetricFamily(
        "evictune_recomputed_tokens",
        "Tokens computed again because their cached blocks were evicted; counted low, by at most "
        "a fifth of a prefix.",
        labels=["engine"],
    )
    change = SummaryMetricFamily(
        "evictune_knob_change_seconds",
        "Seconds the scheduler's thread spent applying changes.",
        labels=["engine"],
    )
    refused = CounterMetricFamily(
        "evictune_refused_documents",
        "Knob documents refused or expired; what was in force stays until it expires itself.",
        labels=["engine", "reason"],
    )
    refusal = GaugeMetricFamily(
        "evictune_refused_document_info",
        "Present while the knob document on disk is refused or expired; 1.",
        labels=["engine", "reason", "message"],
    )
    for report in reports:
        engine = report.engine
        xi, q_hat = ("" if n is None else str(n) for n in (report.xi_tokens, report.q_hat_tokens))
        info.add_metric([report.policy, xi, q_hat, str(report.revision), engine], 1)
        eligible.add_metric([engine, report.ineligible], 0 if report.ineligible else 1)
        for region, count in report.evicted.items():
            evicted.add_metric([engine, region], count)
        if report.evicted:
            recomputed.add_metric([engine], report.recomputed_tokens)
        change.add_metric([engine], report.changes, report.change_seconds)
        for reason, count in report.refused.items():
            refused.add_metric([engine, reason], count)
        if report.refusal:
            refusal.add_metric([engine, *report.refusal], 1)
    return [info, eligible, evicted, recomputed, change, refused, refusal]


class ReportDirectory:
    """Where the ranks of a pod leave their reports for the one that serves.

    Args:
        key: Names what shares a port: address and pod.
        parent: Parent directory, by default the system's for temporary files.
        clock: Seconds since the epoch.
    """

    def __init__(
        self, key: str, parent: Path | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        name = f"evictune-{os.getuid()}-{sha256(key.encode()).hexdigest()[:16]}"
        self.path = (parent or Path(tempfile.gettempdir())) / name
        self._clock = clock

    def put(self, report: Report) -> None:
        """Leave this process's report, replacing its previous one.

        Raises:
            OSError: When the directory cannot be written, or is not ours alone.
        """
        self.path.mkdir(mode=0o700, exist_ok=True)
        status = self.path.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
            raise PermissionError(f"{self.path} is not a directory of this user")
        new = self.path / f"{os.getpid()}.new"
        new.write_text(json.dumps(asdict(report)))
        new.replace(self._own)

    def withdraw(self) -> None:
        """Remove this process's report: it serves itself."""
        self._own.unlink(missing_ok=True)

    def others(self) -> Iterator[Report]:
        """The reports of other living processes."""
        for file in sorted(self.path.glob("*.json")):
            if file != self._own and self._is_fresh(file):
                try:
                    yield Report(**json.loads(file.read_bytes()))
                except (OSError, ValueError, TypeError) as error:
                    logger.warning("Ignoring the report %s: %s", file, error)

    @property
    def _own(self) -> Path:
        return self.path / f"{os.getpid()}.json"

    def _is_fresh(self, file: Path) -> bool:
        """Whether the writer still writes; a dead one's file is removed."""
        try:
            os.kill(int(file.stem), 0)
            return self._clock() - file.stat().st_mtime < STALE_SECONDS
        except PermissionError:
            return False
        except (ProcessLookupError, ValueError):
            file.unlink(missing_ok=True)
            return False
        except FileNotFoundError:
            return False


class SettingError(ValueError):
    """A setting of the plugin that it cannot work with; the message is for people."""


def parse_address(address: str) -> tuple[str, int]:
    """Split ``HOST:PORT``; an IPv6 host stands in brackets.

    Raises:
        SettingError: When it is not of that form.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise SettingError(
            f"EVICTUNE_METRICS_ADDRESS is {address!r}, want HOST:PORT such as 0.0.0.0:9410"
        )
    return host.strip("[]"), int(port)


class MetricsPort(Collector):
    """Serves the reports of all ranks of the pod, or hands over that of this one.

    Args:
        address: ``HOST:PORT`` to serve ``/metrics`` on.
        report: Returns this rank's report; called from other threads.
        directory: Shared by all ranks of the pod.
        of_pod: The series that are the pod's and no rank's.
    """

    def __init__(
        self,
        address: str,
        report: Callable[[], Report],
        directory: ReportDirectory,
        of_pod: Callable[[], list[Metric]] = list,
    ) -> None:
        self._host, self._port = parse_address(address)
        self._address = address
        self._report = report
        self._directory = directory
        self._of_pod = of_pod
        self._told: set[str] = set()
        self.serving = False

    def tick(self) -> None:
        """Serve if the port is free, else hand the report over. Never raises for want of a port."""
        if self.serving:
            return
        try:
            registry = CollectorRegistry(auto_describe=False)
            registry.register(self)
            start_http_server(self._port, self._host, registry)
        except OSError as error:
            self._tell(f"Metrics are handed over, not served here on {self._address}: {error}")
        else:
            self.serving = True
            logger.info("Serving metrics on http://%s/metrics", self._address)
        try:
            if self.serving:
                self._directory.withdraw()
            else:
                self._directory.put(self._report())
        except OSError as error:
            self._tell(f"Metrics are not handed over to the serving process: {error}")

    def collect(self) -> list[Metric]:
        """Build the series at a scrape; of two reports for one engine the first counts."""
        reports: dict[str, Report] = {}
        for report in (self._report(), *self._directory.others()):
            reports.setdefault(report.engine, report)
        return [*families(reports.values()), *self._of_pod()]

    def _tell(self, trouble: str) -> None:
        """Log a lasting trouble once."""
        if trouble not in self._told:
            self._told.add(trouble)
            logger.warning("%s", trouble)
