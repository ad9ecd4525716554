"""A namespace goes with its policy: nothing holds it, and the operator forgets it."""

from __future__ import annotations

from tests.support.installation import Installation, wait_for
from tests.support.serving import Serving


def test_nothing_holds_the_namespace(serving: Serving) -> None:
    serving.bring_into_force(judged=False)
    operator = _identity(serving.installation)
    assert f'namespace="{serving.namespace}"' in serving.installation.page()
    serving.shell.run(f"kubectl delete namespace {serving.namespace} --timeout=60s")
    wait_for(
        "forgotten",
        lambda: f'namespace="{serving.namespace}"' not in serving.installation.page(),
        30,
    )
    assert _identity(serving.installation) == operator


def _identity(installation: Installation) -> tuple[str, int]:
    """The operator's pod, and how often it was restarted."""
    pod = installation.pod()
    return pod["metadata"]["uid"], pod["status"]["containerStatuses"][0]["restartCount"]
