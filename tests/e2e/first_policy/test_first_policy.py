"""The README's first policy, word for word: wired, declared, looked at, switched to Auto."""

from __future__ import annotations

import json

import yaml

from tests.support.installation import README, Installation, wait_for
from tests.support.serving import WORKLOAD, Serving, deployment
from tests.support.walkthrough import steps

# The README's policy looks every 30 s; that a test's does each second is no step of the README's.
QUICK = {"spec": {"behavior": {"interval": "1s"}}}


def test_the_readme_step_by_step(installation: Installation) -> None:
    wire, declare, look = steps(README, "A first policy")
    assert declare.manifest
    declared = yaml.safe_load(declare.text)
    name, namespace = declared["metadata"]["name"], declared["metadata"]["namespace"]
    assert declared["spec"]["targetRef"]["name"] == WORKLOAD
    with Serving(installation, namespace) as serving:
        _wire(serving, wire.text)
        serving.shell.run("kubectl apply -f -", declare.text)
        serving.kubectl(f"patch evp {name} --type=merge -p '{json.dumps(QUICK)}'")
        wait_for("a recommendation", lambda: "recommendation" in serving.status(name))
        assert serving.document() is None
        told = serving.shell.run(look.text)
        for shown in (
            *("SLO MET", name, "Recommend", "ReuseLost"),  # kubectl get
            *("what would help", "p99 of TTFT at most 800ms"),  # evictune explain
            *("IN FORCE", "RECOMMENDED", "RecommendOnly"),  # evictune diff
            f"evictionpolicy.evictune.io/{name} patched",
        ):
            assert shown in told, f"{shown!r} is missing in:\n{told}"
        wait_for("the engine's word", lambda: "Acknowledged" in serving.reasons(name))
        _check_in_force(serving, declared)
        serving.kubectl(f"delete evp {name} --timeout=30s")
        wait_for("stock LRU", serving.stock)


def _wire(serving: Serving, line: str) -> None:
    """The first step, on the manifest that its reader has."""
    manifest = deployment()
    manifest["metadata"]["namespace"] = serving.namespace
    (serving.shell.directory / "deployment.yaml").write_text(yaml.safe_dump(manifest))
    serving.shell.run(line)
    serving.await_rollout()


def _check_in_force(serving: Serving, declared: dict[str, object]) -> None:
    """Within the bounds that were declared, on the engine itself."""
    (engine,) = serving.engines()
    shown, document = engine.in_force(), serving.document()
    assert shown is not None
    assert document is not None
    bounds = declared["spec"]["knobs"]["tlru"]["xiTokens"]  # type: ignore[index]
    assert shown.xi_tokens == document["default"]["xiTokens"]
    assert bounds["min"] <= document["default"]["xiTokens"] <= bounds["max"]
