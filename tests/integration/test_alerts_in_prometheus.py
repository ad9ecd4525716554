"""A real Prometheus loads the rules as the chart renders them, and scrapes the operator's page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from prometheus_client import generate_latest

from localcluster.processes import wait_until
from tests.support.alert_rules import alerts, recorded
from tests.support.chart_snapshots import DATA, template
from tests.support.fake_engines import SLOW
from tests.support.loop_case import LoopCase, play
from tests.support.operator_process import eventually
from tests.support.page_server import Answer, serve
from tests.support.prometheus import Prometheus, prometheus
from tests.support.watched_loop import WatchedLoop

ADDRESS = "127.0.0.1"
WAIT = 30.0
EXPECTED = {"EvictunePolicyNotActive"}


def page() -> str:
    """Of an operator whose one policy is out of reach, and whose engines lost the plugin."""
    case = LoopCase()

    async def scenario(case: LoopCase) -> None:
        case.behave = lambda values: SLOW
        watched = WatchedLoop(case)
        await watched.run(20)
        case.deaf.update(case.engines)
        await watched.run(2)

    play(scenario, case)
    case.metrics.last_list.set_to_current_time()
    case.metrics.last_tick.labels("serve-a", "owl-chat").set_to_current_time()
    return generate_latest(case.metrics.registry).decode()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    directory = tmp_path_factory.mktemp("rules")
    manifests = yaml.safe_load_all(template(DATA / "everything.values.yaml"))
    (rule,) = [each for each in manifests if each["kind"] == "PrometheusRule"]
    (directory / "rules.yaml").write_text(yaml.safe_dump(rule["spec"]))
    text = page()
    with (
        serve(lambda asked: Answer(text)) as operator,
        prometheus(ADDRESS, directory / "data", "1s", directory / "rules.yaml") as found,
    ):
        found.scrape([pod_at(operator.url)])
        wait_until(lambda: evaluated(found), [], "rules were not evaluated", WAIT)
        yield found


def pod_at(url: str) -> dict[str, Any]:
    """The operator's pod, as the API server would show it."""
    parts = urlsplit(url)
    return {
        "metadata": {"namespace": "operators", "name": "tuner-0"},
        "status": {"podIP": parts.hostname},
        "spec": {"containers": [{"ports": [{"containerPort": parts.port}]}]},
    }


def evaluated(found: Prometheus) -> bool:
    """Whether every rule was evaluated, with the series there."""
    known = all(rule["health"] != "unknown" for rule in found.rules())
    return known and set(pending(found)) >= EXPECTED


def pending(found: Prometheus) -> dict[str, dict[str, Any]]:
    """The alerts that are at least pending, by name."""
    active = [alert for rule in found.rules() for alert in rule.get("alerts", [])]
    return {each["labels"]["alertname"]: each for each in active}


def test_every_rule_is_evaluated_without_an_error(running: Prometheus) -> None:
    rules = running.rules()
    assert {rule["name"] for rule in rules} == set(alerts()) | recorded()
    for rule in rules:
        assert (rule["health"], rule.get("lastError", "")) == ("ok", ""), rule["name"]


def test_an_alert_is_about_the_policy_in_its_own_namespace(running: Prometheus) -> None:
    assert set(pending(running)) == EXPECTED
    alert = pending(running)["EvictunePolicyNotActive"]
    assert alert["labels"]["namespace"] == "serve-a"
    assert alert["labels"]["policy"] == "owl-chat"
    assert alert["annotations"]["summary"].startswith("serve-a/owl-chat ")
    (leading,) = running.query("evictune_leading")
    assert leading["metric"]["namespace"] == "operators"


def test_what_is_recorded_is_about_the_policy_too(running: Prometheus) -> None:
    name = "policy:evictune_slo_violated:max"
    # A scrape that came late on a busy machine takes the series away for a second.
    (violated,) = eventually(lambda: running.query(name), f"{name} is there", WAIT)
    assert violated["value"][1] == "1"
    assert violated["metric"]["namespace"] == "serve-a"
