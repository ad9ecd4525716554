"""The series of a pod's memory fraction and restarts, for the port that the engine ranks share."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

from prometheus_client.core import GaugeMetricFamily, Metric

from evictune_policies.engine.memory import Record
from evictune_policies.engine.state import StateError, StateFolder

BEGUN = "EVICTUNE_BEGUN"


@dataclass(frozen=True, slots=True)
class Begun:
    """What a start decided, as the engine's other processes find it in their environment.

    Attributes:
        manifest: The fraction of the command line.
        in_force: The fraction that the engine was started with.
        reason: Why that is the manifest's; empty when it is the document's.
        ineligible: Why it always is the manifest's; empty when it need not be.
        message: The same as a sentence.
    """

    manifest: float
    in_force: float
    reason: str = ""
    ineligible: str = ""
    message: str = ""

    @classmethod
    def read(cls, text: str) -> "Begun":
        """What :meth:`text` wrote."""
        return cls(**json.loads(text))

    def text(self) -> str:
        """For the environment."""
        return json.dumps(asdict(self))


def families_in(environ: Mapping[str, str]) -> list[Metric]:
    """The series as of now; none when vLLM was started by something the plugin does not see."""
    if BEGUN not in environ:
        return []
    begun = Begun.read(environ[BEGUN])
    if begun.ineligible:
        return memory_families(begun, Record())
    try:
        return memory_families(begun, StateFolder(environ.get("EVICTUNE_STATE_DIR")).read())
    except StateError as error:
        damaged = replace(begun, ineligible=error.reason, message=str(error))
        return memory_families(damaged, Record())


def memory_families(begun: Begun, record: Record) -> list[Metric]:
    """Build the series of one pod."""
    eligible = GaugeMetricFamily(
        "evictune_memory_eligible",
        "1: the pod takes gpuMemoryUtilization from the knob document and restarts on request. "
        "0: it does not, for this reason.",
        labels=["reason", "message"],
    )
    fraction = GaugeMetricFamily(
        "evictune_memory_fraction",
        "Memory fraction, source manifest: of the command line; in-force: the engine's.",
        labels=["source"],
    )
    attempt = GaugeMetricFamily(
        "evictune_memory_attempt",
        "The document's fraction in this pod; 1. State trying: in force, not yet proven; "
        "confirmed: in force; dropped: it failed, and is not tried again under this revision; "
        "none: the manifest's is in force, for this reason; revision: the last that failed.",
        labels=["state", "fraction", "revision", "reason"],
    )
    restart = GaugeMetricFamily(
        "evictune_restart_info",
        "The last restart that the document asked for; 1. State draining: not Ready, requests in "
        "flight are awaited; done: it is carried out.",
        labels=["token", "state"],
    )
    eligible.add_metric([begun.ineligible, begun.message], 0 if begun.ineligible else 1)
    fraction.add_metric(["manifest"], begun.manifest)
    fraction.add_metric(["in-force"], begun.in_force)
    attempt.add_metric(_attempt(begun, record), 1)
    if record.restarted:
        state = "draining" if record.leaving else "done"
        restart.add_metric([record.restarted[-1], state], 1)
    return [eligible, fraction, attempt, restart]


def _attempt(begun: Begun, record: Record) -> list[str]:
    found = record.attempt
    if found is None:
        # Whoever numbers documents anew must go beyond what failed here under an earlier one.
        failed = str(max(revision for revision, _ in record.failed)) if record.failed else ""
        return ["none", "", failed, begun.ineligible or begun.reason]
    return [found.state, str(found.fraction), str(found.revision), begun.reason]
