"""A new engine version joins: its series have other names; values stay, readings go on."""

from __future__ import annotations

from tests.support.installation import wait_for
from tests.support.serving import Serving, deployment

# What vLLM has from 0.16 on; before, computed tokens are read from another series.
JOINED = "vllm:prompt_tokens_by_source_total"
BEFORE = "vllm:request_prefill_kv_computed_tokens_sum"


def test_a_new_version_takes_over_what_is_in_force(namespace: Serving) -> None:
    serving = namespace
    serving.start(replicas=2, arguments=(f"--without={JOINED}",))
    serving.bring_into_force()
    old = {pod["metadata"]["uid"] for pod in serving.pods()}
    revision, decided = serving.status()["applied"]["revision"], serving.reasons().count("Intended")
    assert _names(serving) == {BEFORE}

    serving.apply_wired(deployment(replicas=2))
    wait_for("both versions read at once", lambda: _names(serving) == {BEFORE, JOINED}, 30)
    serving.await_rollout()
    wait_for("the new version alone", lambda: _names(serving) == {JOINED})
    wait_for("in force on the new version", serving.in_force)
    assert not old & {pod["metadata"]["uid"] for pod in serving.pods()}
    assert serving.status()["applied"]["revision"] == revision
    assert serving.reasons().count("Intended") == decided
    wait_for("readings", lambda: serving.condition("MetricsAvailable")[0] == "True")


def _names(serving: Serving) -> set[str]:
    """What the engines call computed tokens, by the policy's status."""
    names = serving.status().get("observed", {}).get("metricNames", ())
    shown = next((each["name"] for each in names if each["measure"] == "computed_tokens"), "")
    return set(shown.replace(",", " ").split())
