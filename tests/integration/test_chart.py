"""The chart as Helm renders it."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from evictune.api.rights import CLUSTER_RIGHTS
from evictune.api.rights import RIGHTS as NEEDED
from evictune.api.sources import parse_configuration

from localcluster.binaries import version
from tests.support.helm import CHART, each_helm, helm

__all__ = ["each_helm"]
pytestmark = pytest.mark.usefixtures("each_helm")
CLUSTER_WIDE = {"ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition"}
RIGHTS = {
    "evictionpolicies": {"get", "list", "watch"},
    "evictionpolicies/status": {"patch"},
    "deployments": {"get"},
    "statefulsets": {"get"},
    "replicasets": {"list"},
    "pods": {"list"},
    "configmaps": {"get", "create", "patch"},
    "events": {"create"},
}
LEASE_RULES = [
    {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "resourceNames": ["evictune"],
        "verbs": ["get", "update"],
    },
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
]
PROMETHEUS = {
    "url": "https://metrics.example/prefix",
    "timeout": "5s",
    "headers": {"X-Scope-OrgID": "team-a"},
    "bearerTokenFile": "/etc/evictune/secrets/token",
    "caFile": "/etc/evictune/secrets/ca.crt",
}

Object = dict[str, Any]


def render(
    values: Object | None = None, release: str = "release", namespace: str = "operators"
) -> dict[str, list[Object]]:
    """The chart's objects by kind, without those of `helm test`."""
    command = ["template", release, str(CHART), "--namespace", namespace, "--no-hooks"]
    command += ["--kube-version", version("kube-apiserver")]
    found: dict[str, list[Object]] = {}
    for body in yaml.safe_load_all(helm(*command, values=values or {})):
        found.setdefault(body["kind"], []).append(body)
    return found


def rights(role: Object) -> dict[str, set[str]]:
    """Verbs by resource."""
    return {
        resource: set(rule["verbs"]) for rule in role["rules"] for resource in rule["resources"]
    }


def test_helm_finds_nothing_to_complain_about() -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", str(CHART))


def test_one_operator_that_may_only_what_it_does() -> None:
    objects = render()
    (deployment,) = objects["Deployment"]
    assert deployment["spec"]["replicas"] == 1
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}
    (role,) = objects["ClusterRole"]
    # Kopf watches definitions to notice one that is installed later.
    assert rights(role) == RIGHTS | {"customresourcedefinitions": {"list", "watch"}}
    (lease,) = objects["Role"]
    assert (lease["metadata"]["namespace"], lease["rules"]) == ("operators", LEASE_RULES)
    (binding,) = objects["ClusterRoleBinding"]
    account = deployment["spec"]["template"]["spec"]["serviceAccountName"]
    (subject,) = binding["subjects"]
    assert subject == {"kind": "ServiceAccount", "name": account, "namespace": "operators"}
    assert objects["RoleBinding"][0]["subjects"] == [subject]
    assert objects["ServiceAccount"][0]["metadata"]["name"] == account


def test_check_asks_for_what_the_chart_grants() -> None:
    asked: dict[str, set[str]] = {}
    for right in (*NEEDED, *CLUSTER_RIGHTS):
        asked.setdefault(right.resource, set()).add(right.verb)
    assert asked == RIGHTS | {"customresourcedefinitions": {"list", "watch"}}


def test_the_pod_holds_the_lease_under_its_own_name_in_its_own_namespace() -> None:
    for values in ({}, {"extraEnv": [{"name": "TZ", "value": "UTC"}]}):
        objects = render(values)
        (container,) = objects["Deployment"][0]["spec"]["template"]["spec"]["containers"]
        found = {each["name"]: each.get("valueFrom") for each in container["env"]}
        assert found["POD_NAME"] == {"fieldRef": {"fieldPath": "metadata.name"}}
        assert found["POD_NAMESPACE"] == {"fieldRef": {"fieldPath": "metadata.namespace"}}
        assert ("TZ" in found) is bool(values)


def test_another_name_of_the_lease_reaches_the_operator_and_its_rights() -> None:
    objects = render({"lease": {"name": "team-a"}})
    assert configuration(objects).lease_name == "team-a"
    assert objects["Role"][0]["rules"][0]["resourceNames"] == ["team-a"]


def test_with_namespaces_it_has_no_rights_elsewhere() -> None:
    objects = render({"watchNamespaces": ["a", "b"]})
    assert CLUSTER_WIDE & set(objects) == {"CustomResourceDefinition"}
    for kind in ("Role", "RoleBinding"):
        assert [each["metadata"]["namespace"] for each in objects[kind]] == ["a", "b", "operators"]
    assert [rights(role) for role in objects["Role"][:2]] == [RIGHTS, RIGHTS]
    assert objects["Role"][2]["rules"] == LEASE_RULES
    assert configuration(objects).namespaces == ("a", "b")


def test_the_container_is_hardened() -> None:
    pod = render()["Deployment"][0]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_the_definition_is_the_generated_one_and_is_kept() -> None:
    generated = yaml.safe_load((CHART / "files/crd.yaml").read_text())
    assert render()["CustomResourceDefinition"] == [generated]
    # Uninstalling the chart would otherwise delete every policy.
    keep = generated["metadata"].pop("annotations")
    assert keep == {"helm.sh/resource-policy": "keep"}
    assert render({"crds": {"keep": False}})["CustomResourceDefinition"] == [generated]
    assert "CustomResourceDefinition" not in render({"crds": {"install": False}})


def configuration(objects: dict[str, list[Object]]) -> Any:
    """The operator's configuration, as the operator itself understands it."""
    (config_map,) = objects["ConfigMap"]
    return parse_configuration(config_map["data"]["config.yaml"])


def test_without_a_source_the_engines_are_scraped() -> None:
    sources = configuration(render()).sources
    assert {name: source.kind for name, source in sources.items()} == {
        "default": "direct",
        "engines": "direct",
    }


def test_every_setting_of_a_source_reaches_the_operator() -> None:
    values = {"sources": {"default": {"prometheus": PROMETHEUS}}, "metrics": {"port": 9999}}
    parsed = configuration(render(values))
    source = parsed.sources["default"]
    assert source.kind == "prometheus"
    assert source.url == PROMETHEUS["url"]
    assert source.timeout == 5.0
    assert dict(source.headers) == PROMETHEUS["headers"]
    assert str(source.bearer_token_file) == PROMETHEUS["bearerTokenFile"]
    assert str(source.ca_file) == PROMETHEUS["caFile"]
    assert parsed.metrics_address == "0.0.0.0:9999"


def test_a_changed_configuration_restarts_the_operator() -> None:
    def checksum(values: Object) -> str:
        template = render(values)["Deployment"][0]["spec"]["template"]
        return str(template["metadata"]["annotations"]["checksum/config"])

    other = {"sources": {"default": {"prometheus": PROMETHEUS}}}
    assert checksum({}) == checksum({"logFormat": "text"}) != checksum(other)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"image": {"registry": "x"}}, "registry"),
        ({"sources": {"default": {"prometheus": {"timeout": "5s"}}}}, "url"),
        ({"sources": {"default": {"direct": {}, "prometheus": PROMETHEUS}}}, "default"),
        ({"sources": {"default": {"prometheus": PROMETHEUS | {"timeout": "fast"}}}}, "timeout"),
        ({"watchNamespaces": "serving"}, "watchNamespaces"),
    ],
)
def test_a_value_that_cannot_be_used_is_refused_by_name(values: Object, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        render(values)


def test_names_that_look_like_numbers_are_names() -> None:
    values = {"watchNamespaces": ["910"], "fullnameOverride": "42", "priorityClassName": "7"}
    objects = render(values, release="1234", namespace="5678")
    for each in (each for bodies in objects.values() for each in bodies):
        metadata = each["metadata"]
        labels = metadata.get("labels", {})
        for text in (metadata["name"], metadata.get("namespace", ""), *labels.values()):
            assert isinstance(text, str), (each["kind"], text)
    (deployment,) = objects["Deployment"]
    pod = deployment["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == "42"
    assert pod["priorityClassName"] == "7"
    assert pod["volumes"][0]["configMap"]["name"] == "42"
    assert objects["RoleBinding"][0]["roleRef"]["name"] == "42"
    assert deployment["spec"]["selector"]["matchLabels"]["app.kubernetes.io/instance"] == "1234"


def test_a_header_comes_through_whatever_it_holds() -> None:
    text = """it's "quoted": {{ a }} # no comment, \\ and $x"""
    source = {"prometheus": {"url": "http://x", "headers": {"X-Note": text}}}
    parsed = configuration(render({"sources": {"default": source}}))
    assert dict(parsed.sources["default"].headers) == {"X-Note": text}
