"""Prometheus is away: it is said, nothing is decided, and what is in force stays and is renewed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.installation import wait_for
from tests.support.prometheus import prometheus
from tests.support.serving import Serving, policy

SOURCE: dict[str, Any] = {"metrics": {"source": "prometheus"}, "behavior": {"knobTTL": "8s"}}


def test_an_outage_is_said_and_survived(serving: Serving, tmp_path: Path) -> None:
    serving.installation.ensure_source()
    address, port = serving.installation.node.host_address, serving.installation.prometheus_port
    with prometheus(address, tmp_path / "metrics", "1s", port=port) as metrics:
        metrics.scrape(serving.pods())
        serving.apply(policy(**SOURCE))
        wait_for("a xi in force", serving.in_force)
        decided = serving.reasons()
        metrics.stop()
        wait_for("said", lambda: _metrics(serving)[1] == "SourceUnavailable")
        before = serving.document()
        assert before is not None
        wait_for("renewed", lambda: _expires(serving) > before["expires"], 20)
        assert serving.in_force()
        assert serving.status()["regime"]["name"] == "Unknown"
        assert serving.reasons().count("Intended") == decided.count("Intended")
        metrics.start()
        wait_for("readings again", lambda: _metrics(serving)[0] == "True")
        wait_for("met", lambda: serving.condition("SLOMet")[0] == "True")


def _metrics(serving: Serving) -> tuple[str, str, str]:
    return serving.condition("MetricsAvailable")


def _expires(serving: Serving) -> str:
    document = serving.document()
    return str(document["expires"]) if document else ""
