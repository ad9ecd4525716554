"""`helm uninstall`: engines return to stock LRU, policies stay and are found again, or all goes."""

from __future__ import annotations

from tests.support.installation import GUIDE, NAME, NAMESPACE, wait_for
from tests.support.operator_scene import DEFINITION
from tests.support.serving import POLICY, Serving
from tests.support.walkthrough import steps


def test_engines_return_to_stock_and_policies_stay(serving: Serving) -> None:
    serving.bring_into_force(behavior={"knobTTL": "8s"})
    revision, installation = serving.status()["applied"]["revision"], serving.installation
    installation.uninstall()
    wait_for("stock LRU", serving.stock, 30)
    assert serving.engines()[0].healthy()
    assert serving.kubectl(f"get evp {POLICY} -o name")
    listed = "kubectl get clusterroles,clusterrolebindings -o name"
    assert f"/{NAME}" not in serving.shell.run(listed)
    assert serving.shell.run(f"kubectl get all -n {NAMESPACE} -o name") == ""
    installation.ensure()
    wait_for("found again", serving.in_force)
    assert serving.status()["applied"]["revision"] == revision


def test_without_the_operator_nothing_is_stuck(serving: Serving) -> None:
    """No policy waits for it, and so no namespace: there are no finalizers."""
    serving.bring_into_force(judged=False)
    serving.installation.uninstall()
    serving.kubectl(f"delete evp {POLICY} --timeout=10s")
    wait_for("the document collected", lambda: serving.document() is None)
    wait_for("stock LRU", serving.stock, 30)


def test_all_of_it_goes_as_the_guide_says(serving: Serving) -> None:
    serving.bring_into_force(judged=False)
    serving.shell.run(f"helm test {NAME} -n {NAMESPACE}")
    (remove,) = steps(GUIDE, "Remove")
    told = serving.shell.run(remove.text)
    assert f'"{DEFINITION}" deleted' in told
    wait_for("stock LRU", serving.stock, 30)
    assert serving.document() is None
    assert serving.engines()[0].healthy()
    assert DEFINITION not in serving.shell.run("kubectl get crd -o name")
    wait_for(
        "nothing left", lambda: not serving.shell.run(f"kubectl get all -n {NAMESPACE} -o name")
    )
