"""An operator for some namespaces: it works with rights in these, and has none elsewhere."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator

import pytest

from tests.support.installation import GUIDE, NAME, NAMESPACE, Installation
from tests.support.objects import Objects
from tests.support.operator_scene import DEFINITION
from tests.support.serving import POLICY, Serving, policy
from tests.support.walkthrough import steps

OTHER = "serving-elsewhere"
DEFINE = "evictune crd | kubectl apply -f -"


@pytest.fixture(scope="module")
def tenant(release: Installation) -> Iterator[Serving]:
    """A followed namespace, the release made as the guide says, and a namespace not followed."""
    (step,) = steps(GUIDE, "For some namespaces")
    found = re.search(r"watchNamespaces=\{([^}]*)\}", step.text)
    assert found is not None
    followed, *others = found[1].split(",")
    release.uninstall()
    shell = release.shell
    assert DEFINE in GUIDE.read_text()
    shell.run(DEFINE)
    shell.cluster.await_definition(DEFINITION)
    for name in (NAMESPACE, OTHER, *others):
        shell.run(f"kubectl create namespace {name} --dry-run=client -o yaml | kubectl apply -f -")
    with Serving(release, followed) as serving:
        shell.run(step.text)
        release.await_operator()
        yield serving
        release.uninstall()


def test_rights_of_its_namespaces_suffice(tenant: Serving) -> None:
    release, shell = tenant.installation, tenant.shell
    began = len(release.requests())
    shell.run(f"kubectl -n {OTHER} apply -f -", json.dumps(policy()))
    tenant.start()
    tenant.bring_into_force(judged=False)
    requests = release.requests()[began:]
    denied = [each for each in requests if each["responseStatus"].get("code") in (401, 403)]
    assert [each["requestURI"] for each in denied] == []
    places = {each["objectRef"].get("namespace") for each in requests if "objectRef" in each}
    assert OTHER not in places
    assert tenant.namespace in places
    # Not in the followed namespaces: nobody looks at it.
    time.sleep(1)
    assert "status" not in Objects(shell.cluster, OTHER).get("evp", POLICY)


def test_it_has_no_rights_elsewhere(tenant: Serving) -> None:
    shell = tenant.shell
    granted = shell.run("kubectl get clusterroles,clusterrolebindings -o name")
    assert f"/{NAME}" not in granted
    account = f"--as=system:serviceaccount:{NAMESPACE}:{NAME}"
    for right in ("list pods", "list evictionpolicies.evictune.io", "patch configmaps"):
        for place, answer in ((OTHER, "no"), (tenant.namespace, "yes")):
            asked = f"kubectl auth can-i {right} -n {place} {account} || true"
            assert shell.run(asked).strip() == answer, (right, place)
