"""Which pod fields a ProcessNode honours: an allow-list, so that what it does not know is refused.

A field that is not listed here is refused by its name; a pod is never run in a way that its
manifest did not ask for. Some listed fields are accepted without effect, since a process has no
use for them: `image`, `imagePullPolicy`, `imagePullSecrets` (the local machine's programs are
run), `resources` (not enforced), `ports` (informative), the scheduler's fields, and
`enableServiceLinks` (only KUBERNETES_SERVICE_HOST and _PORT are set).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from localcluster.processnode.api import Json

REASON_UNSUPPORTED = "UnsupportedPodField"
_REMEDY = "remove it or use a real node"


class _Anything:
    """The field is honoured, or harmless, whatever it holds."""


ANYTHING = _Anything()


@dataclass(frozen=True)
class OneOf:
    """Only these values of the field are honoured."""

    values: tuple[object, ...]


@dataclass(frozen=True)
class Each:
    """A list, with one rule for every element."""

    rule: Rule


@dataclass(frozen=True)
class Matching:
    """A string that the whole pattern matches."""

    pattern: str


Rule = _Anything | OneOf | Each | Matching | dict[str, Any]

_FIELD_PATH = Matching(
    r"metadata\.(name|namespace|uid|(labels|annotations)\['[^']+'\])"
    r"|spec\.(nodeName|serviceAccountName)|status\.(podIPs?|hostIPs?)"
)
_METADATA_FIELD_PATH = Matching(
    r"metadata\.(name|namespace|uid|labels|annotations|(labels|annotations)\['[^']+'\])"
)
_KEY_REF = {"name": ANYTHING, "key": ANYTHING, "optional": ANYTHING}
_OBJECT_REF = {"name": ANYTHING, "optional": ANYTHING}
_KEYS = Each({"key": ANYTHING, "path": ANYTHING, "mode": ANYTHING})
_NEVER = OneOf((False,))

_DOWNWARD_ITEMS = Each(
    {
        "path": ANYTHING,
        "mode": ANYTHING,
        "fieldRef": {"apiVersion": OneOf(("v1",)), "fieldPath": _METADATA_FIELD_PATH},
    }
)

_ENV = Each(
    {
        "name": ANYTHING,
        "value": ANYTHING,
        "valueFrom": {
            "fieldRef": {"apiVersion": OneOf(("v1",)), "fieldPath": _FIELD_PATH},
            "configMapKeyRef": _KEY_REF,
            "secretKeyRef": _KEY_REF,
        },
    }
)

_PROBE = {
    "httpGet": {
        "path": ANYTHING,
        "port": ANYTHING,
        "host": ANYTHING,
        "scheme": OneOf(("HTTP", "HTTPS")),
        "httpHeaders": ANYTHING,
    },
    "tcpSocket": {"port": ANYTHING, "host": ANYTHING},
    "exec": {"command": ANYTHING},
    "initialDelaySeconds": ANYTHING,
    "periodSeconds": ANYTHING,
    "timeoutSeconds": ANYTHING,
    "successThreshold": ANYTHING,
    "failureThreshold": ANYTHING,
    "terminationGracePeriodSeconds": ANYTHING,
}

_INIT_CONTAINER: dict[str, Rule] = {
    "name": ANYTHING,
    "image": ANYTHING,
    "imagePullPolicy": ANYTHING,
    "command": ANYTHING,
    "args": ANYTHING,
    "workingDir": ANYTHING,
    "env": _ENV,
    "envFrom": Each({"prefix": ANYTHING, "configMapRef": _OBJECT_REF, "secretRef": _OBJECT_REF}),
    "ports": Each({"name": ANYTHING, "containerPort": ANYTHING, "protocol": ANYTHING}),
    "resources": ANYTHING,
    "resizePolicy": ANYTHING,
    "volumeMounts": Each(
        {"name": ANYTHING, "mountPath": Matching(r"/.*[^/]/*"), "readOnly": ANYTHING}
    ),
    "terminationMessagePath": OneOf(("/dev/termination-log",)),
    "terminationMessagePolicy": OneOf(("File", "FallbackToLogsOnError")),
    "securityContext": {"privileged": _NEVER},
    "stdin": _NEVER,
    "stdinOnce": _NEVER,
    "tty": _NEVER,
}

_CONTAINER: dict[str, Rule] = {
    **_INIT_CONTAINER,
    "livenessProbe": _PROBE,
    "readinessProbe": _PROBE,
    "startupProbe": _PROBE,
}

_CONFIG_MAP = {"name": ANYTHING, "optional": ANYTHING, "items": _KEYS}

_VOLUME = {
    "name": ANYTHING,
    "configMap": {**_CONFIG_MAP, "defaultMode": ANYTHING},
    "secret": {
        "secretName": ANYTHING,
        "optional": ANYTHING,
        "items": _KEYS,
        "defaultMode": ANYTHING,
    },
    "emptyDir": {"medium": OneOf(("", "Memory")), "sizeLimit": ANYTHING},
    "hostPath": {
        "path": ANYTHING,
        "type": OneOf(("", "Directory", "DirectoryOrCreate", "File")),
    },
    "downwardAPI": {"items": _DOWNWARD_ITEMS, "defaultMode": ANYTHING},
    "projected": {
        "defaultMode": ANYTHING,
        "sources": Each(
            {
                "configMap": _CONFIG_MAP,
                "secret": _CONFIG_MAP,
                "downwardAPI": {"items": _DOWNWARD_ITEMS},
                "serviceAccountToken": {
                    "path": ANYTHING,
                    "audience": ANYTHING,
                    "expirationSeconds": ANYTHING,
                },
            }
        ),
    },
}

POD_SPEC: dict[str, Rule] = {
    "containers": Each(_CONTAINER),
    "initContainers": Each(_INIT_CONTAINER),
    "volumes": Each(_VOLUME),
    "restartPolicy": OneOf(("Always", "OnFailure", "Never")),
    "terminationGracePeriodSeconds": ANYTHING,
    "dnsPolicy": OneOf(("ClusterFirst", "Default")),
    "securityContext": {},
    "hostNetwork": _NEVER,
    "hostPID": _NEVER,
    "hostIPC": _NEVER,
    "hostUsers": OneOf((True,)),
    "shareProcessNamespace": _NEVER,
    "setHostnameAsFQDN": _NEVER,
    "os": {"name": OneOf(("linux",))},
    "serviceAccountName": ANYTHING,
    "serviceAccount": ANYTHING,
    "automountServiceAccountToken": ANYTHING,
    "enableServiceLinks": ANYTHING,
    "imagePullSecrets": ANYTHING,
    "resources": ANYTHING,
    # For the scheduler, which has done its work when a node sees the pod.
    "nodeName": ANYTHING,
    "nodeSelector": ANYTHING,
    "affinity": ANYTHING,
    "tolerations": ANYTHING,
    "topologySpreadConstraints": ANYTHING,
    "schedulerName": ANYTHING,
    "priority": ANYTHING,
    "priorityClassName": ANYTHING,
    "preemptionPolicy": ANYTHING,
}


def refusals(pod: Json) -> list[str]:
    """Say what in a pod a ProcessNode cannot do: one sentence a field; empty if it can run."""
    spec = pod.get("spec", {})
    return [*_check(spec, POD_SPEC, "spec"), *_missing_commands(spec)]


def _check(value: Any, rule: Rule, path: str) -> Iterator[str]:
    if isinstance(rule, _Anything):
        return
    if isinstance(rule, OneOf):
        if value not in rule.values:
            supported = " or ".join(repr(item) for item in rule.values)
            what = path if rule is _NEVER else f"{path} {value!r} (other than {supported})"
            yield f"{what} is not supported by ProcessNode: {_REMEDY}"
    elif isinstance(rule, Matching):
        if not re.fullmatch(rule.pattern, str(value)):
            yield f"{path} {value!r} is not supported by ProcessNode: {_REMEDY}"
    elif isinstance(rule, Each):
        for index, element in enumerate(value or []):
            yield from _check(element, rule.rule, f"{path}[{index}]")
    else:
        yield from _check_fields(value or {}, rule, path)


def _check_fields(value: Json, rule: dict[str, Any], path: str) -> Iterator[str]:
    for field, content in value.items():
        if field in rule:
            yield from _check(content, rule[field], f"{path}.{field}")
        elif content not in (None, "", {}, []):  # an empty field asks for nothing
            yield f"{path}.{field} is not supported by ProcessNode: {_REMEDY}"


def _missing_commands(spec: Json) -> Iterator[str]:
    for group in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(group) or []):
            if not container.get("command"):
                yield (
                    f"spec.{group}[{index}].command is required by ProcessNode, which does not "
                    "read the image's entrypoint: set it or use a real node"
                )
