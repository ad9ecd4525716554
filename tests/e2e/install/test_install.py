"""`helm install` as the README says it: one operator, under restricted pod security."""

from __future__ import annotations

import json
import re

from tests.support.installation import NAME, NAMESPACE, PLUGIN_IMAGE, README, Installation, wait_for
from tests.support.walkthrough import steps

# What the namespace demands of every pod: https://kubernetes.io/docs/concepts/security/
RESTRICTED = f"""\
apiVersion: v1
kind: Namespace
metadata:
  name: {NAMESPACE}
  labels: {{pod-security.kubernetes.io/enforce: restricted}}
"""


def test_the_readme_installs_it_under_restricted_pod_security(release: Installation) -> None:
    shell = release.shell
    release.uninstall()
    shell.run("kubectl apply -f -", RESTRICTED)
    (step,) = steps(README, "Install")
    told = shell.run(step.text)
    assert f"evictune wire deployment.yaml --plugin-image {PLUGIN_IMAGE}" in told
    assert told.count("Succeeded") == 5, told
    (container,) = release.pod()["status"]["containerStatuses"]
    assert container["restartCount"] == 0
    (first,) = json.loads(shell.run(f"helm history {NAME} -n {NAMESPACE} -o json"))
    assert first["status"] == "deployed"


def test_it_leads_and_says_so(installation: Installation) -> None:
    pod = installation.pod()

    def leading() -> bool:
        lease = installation.objects.find("lease", NAME) or {"spec": {}}
        return bool(lease["spec"].get("holderIdentity") == pod["metadata"]["name"])

    wait_for("the lease held by the pod", leading, 30)
    assert "evictune_leading 1.0" in installation.page()


def test_the_notes_say_how_to_look_fields_up(installation: Installation) -> None:
    """Where kubectl knows the cluster as it was before: short names are not found there."""
    notes = installation.shell.run(f"helm get notes {NAME} -n {NAMESPACE}")
    (command,) = re.findall(r"kubectl explain [\w.]+", notes)
    explained = installation.shell.run(f"{command}.slo.ttft")
    assert "threshold" in explained
    assert "minRequests" in explained


def test_it_may_not_touch_pods_and_workloads(installation: Installation) -> None:
    account = f"--as=system:serviceaccount:{NAMESPACE}:{NAME} --all-namespaces"
    for right in ("delete pods", "patch deployments", "get secrets", "delete configmaps"):
        refused = f"kubectl auth can-i {right} {account} || true"
        assert installation.shell.run(refused).strip() == "no", right
