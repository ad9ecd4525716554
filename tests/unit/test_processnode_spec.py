"""Which pods a ProcessNode takes, and how it names what it refuses."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from localcluster.processnode.spec import refusals

# As an API server returns a plain pod: every default filled in, the token volume injected.
DEFAULTED: dict[str, Any] = {
    "metadata": {"name": "web", "namespace": "default", "uid": "u"},
    "spec": {
        "containers": [
            {
                "name": "web",
                "image": "web:1",
                "imagePullPolicy": "IfNotPresent",
                "command": ["serve"],
                "resources": {"limits": {"nvidia.com/gpu": "1"}},
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
                "securityContext": {},
                "ports": [{"containerPort": 8000, "protocol": "TCP", "name": "http"}],
                "readinessProbe": {
                    "httpGet": {"path": "/health", "port": 8000, "scheme": "HTTP"},
                    "timeoutSeconds": 1,
                    "periodSeconds": 10,
                    "successThreshold": 1,
                    "failureThreshold": 3,
                },
                "env": [
                    {
                        "name": "POD_IP",
                        "valueFrom": {
                            "fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}
                        },
                    }
                ],
                "volumeMounts": [
                    {
                        "name": "kube-api-access-x",
                        "readOnly": True,
                        "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
                    }
                ],
            }
        ],
        "volumes": [
            {
                "name": "kube-api-access-x",
                "projected": {
                    "defaultMode": 420,
                    "sources": [
                        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                        {
                            "configMap": {
                                "name": "kube-root-ca.crt",
                                "items": [{"key": "ca.crt", "path": "ca.crt"}],
                            }
                        },
                        {
                            "downwardAPI": {
                                "items": [
                                    {
                                        "path": "namespace",
                                        "fieldRef": {
                                            "apiVersion": "v1",
                                            "fieldPath": "metadata.namespace",
                                        },
                                    }
                                ]
                            }
                        },
                    ],
                },
            }
        ],
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "serviceAccountName": "default",
        "serviceAccount": "default",
        "nodeName": "process-node",
        "securityContext": {},
        "schedulerName": "default-scheduler",
        "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}],
        "priority": 0,
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
    },
}


def test_a_pod_with_all_defaults_of_the_api_server_is_taken() -> None:
    assert refusals(DEFAULTED) == []


@pytest.mark.parametrize(
    ("where", "value", "named"),
    [
        (
            "containers.0.securityContext",
            {"privileged": True},
            "spec.containers[0].securityContext.privileged is not",
        ),
        (
            "containers.0.securityContext",
            {"runAsUser": 0},
            "spec.containers[0].securityContext.runAsUser",
        ),
        ("securityContext", {"fsGroup": 5}, "spec.securityContext.fsGroup"),
        ("containers.0.lifecycle", {"preStop": {}}, "spec.containers[0].lifecycle"),
        ("containers.0.tty", True, "spec.containers[0].tty is not"),
        ("hostNetwork", True, "spec.hostNetwork is not"),
        (
            "dnsPolicy",
            "None",
            "spec.dnsPolicy 'None' (other than 'ClusterFirst' or 'Default') is not",
        ),
        ("subdomain", "x", "spec.subdomain"),
        ("readinessGates", [{"conditionType": "x"}], "spec.readinessGates"),
        ("activeDeadlineSeconds", 5, "spec.activeDeadlineSeconds"),
        (
            "containers.0.volumeMounts.0.subPath",
            "token",
            "spec.containers[0].volumeMounts[0].subPath",
        ),
        ("containers.0.volumeMounts.0.mountPath", "/", "spec.containers[0].volumeMounts[0].mountP"),
        (
            "volumes.0",
            {"name": "kube-api-access-x", "persistentVolumeClaim": {"claimName": "c"}},
            "spec.volumes[0].persistentVolumeClaim",
        ),
        ("containers.0.readinessProbe", {"grpc": {"port": 1}}, "spec.containers[0].readinessProbe"),
        (
            "containers.0.env.0.valueFrom",
            {"resourceFieldRef": {"resource": "limits.cpu"}},
            "spec.containers[0].env[0].valueFrom.resourceFieldRef",
        ),
        (
            "containers.0.env.0.valueFrom.fieldRef.fieldPath",
            "spec.unknown",
            "spec.containers[0].env[0].valueFrom.fieldRef.fieldPath 'spec.unknown'",
        ),
        ("aFieldOfTheFuture", {"x": 1}, "spec.aFieldOfTheFuture"),
    ],
)
def test_an_unsupported_field_is_refused_by_its_name(where: str, value: object, named: str) -> None:
    pod = copy.deepcopy(DEFAULTED)
    _set(pod["spec"], where.split("."), value)
    (message,) = refusals(pod)
    assert message.startswith(named)
    assert "not supported by ProcessNode" in message
    assert "use a real node" in message


def test_every_refused_field_is_named() -> None:
    pod = copy.deepcopy(DEFAULTED)
    pod["spec"]["hostPID"] = True
    pod["spec"]["containers"][0]["lifecycle"] = {"preStop": {"exec": {}}}
    assert len(refusals(pod)) == 2


def test_a_restarting_init_container_is_refused_for_it_is_a_sidecar() -> None:
    pod = copy.deepcopy(DEFAULTED)
    init = {"name": "side", "image": "i", "command": ["x"], "restartPolicy": "Always"}
    pod["spec"]["initContainers"] = [init]
    (message,) = refusals(pod)
    assert message.startswith("spec.initContainers[0].restartPolicy")


def test_a_container_without_command_is_refused() -> None:
    pod = copy.deepcopy(DEFAULTED)
    del pod["spec"]["containers"][0]["command"]
    (message,) = refusals(pod)
    assert message.startswith("spec.containers[0].command is required")


def _set(target: Any, path: list[str], value: object) -> None:
    for name in path[:-1]:
        target = target[int(name)] if name.isdigit() else target[name]
    last = path[-1]
    target[int(last) if last.isdigit() else last] = value
