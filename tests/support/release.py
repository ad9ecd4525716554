"""The chart installed on a control plane without nodes, and its operator run as a process.

What the operator may do is what the chart grants: the process shows its service account's token.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any, Self

import yaml

from localcluster.controlplane import ControlPlane
from tests.support.helm import CHART, helm
from tests.support.operator_process import OperatorProcess
from tests.support.service_account import service_account

NAME = "evictune"

Right = tuple[str, str, str]


class Release:
    """A release in a namespace of its own; uninstalled and deleted at the end."""

    def __init__(
        self, cluster: ControlPlane, directory: Path, values: dict[str, Any] | None = None
    ) -> None:
        self.cluster = cluster
        self.namespace = f"operators-{secrets.token_hex(3)}"
        # The definition is the session's: it outlives the release.
        self.values = {"crds": {"install": False}, **(values or {})}
        self._directory = directory
        self._installed = False

    def __enter__(self) -> Self:
        self.helm("install", NAME, str(CHART), "--create-namespace")
        self._installed = True
        return self

    def __exit__(self, *_: object) -> None:
        if self._installed:
            self.uninstall()
        name = self.namespace
        self.cluster.kubectl("delete", "namespace", name, "--wait=false", "--ignore-not-found")

    def uninstall(self) -> None:
        """`helm uninstall`."""
        self._installed = False
        self.helm("uninstall", NAME)

    def operator(self, *arguments: str) -> OperatorProcess:
        """The operator, with the account that the chart made for it."""
        kubeconfig = service_account(self.cluster, self.namespace, NAME, self._directory)
        lease = {"namespace": self.namespace}
        directory = self._directory / "operator"
        return OperatorProcess(directory, kubeconfig, None, *arguments, lease=lease)

    @property
    def username(self) -> str:
        """As which the API server knows the operator."""
        return f"system:serviceaccount:{self.namespace}:{NAME}"

    def granted(self) -> set[Right]:
        """(API group, resource, verb) of every rule bound to the operator's account."""
        found = set()
        for body in yaml.safe_load_all(self.helm("get", "manifest", NAME)):
            if body["kind"] in ("Role", "ClusterRole"):
                found |= {right for rule in body["rules"] for right in _rights(rule)}
        return found

    def used(self) -> set[Right]:
        """(API group, resource, verb) of what the operator asked for and got, by the audit log.

        Server-side apply that creates an object is a patch, and needs the right to create too.
        """
        found = set()
        for each in self.requests():
            right = _right(each)
            found.add(right)
            if each["verb"] == "patch" and each["responseStatus"]["code"] == 201:
                found.add((*right[:2], "create"))
        return found

    def refused(self) -> set[Right]:
        """What it asked for without having the right.

        A namespace that is going refuses new objects with the same code, whoever asks.
        """
        decision = "authorization.k8s.io/decision"
        forbidden = (e for e in self.requests() if e["annotations"].get(decision) == "forbid")
        return {_right(each) for each in forbidden}

    def requests(self) -> list[dict[str, Any]]:
        """The audit log's events of the operator."""
        events = self.cluster.audit_events()
        return [e for e in events if e["user"]["username"] == self.username and "objectRef" in e]

    def helm(self, command: str, *arguments: str) -> str:
        """A command on the release, with its values where it takes any."""
        values = self.values if command in ("install", "upgrade") else None
        place = ("--namespace", self.namespace)
        return helm(command, *arguments, *place, values=values, cluster=self.cluster)


def _rights(rule: dict[str, Any]) -> set[Right]:
    return {
        (group, resource, verb)
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def _right(event: dict[str, Any]) -> Right:
    reference = event["objectRef"]
    subresource = reference.get("subresource")
    resource = reference["resource"] + (f"/{subresource}" if subresource else "")
    return reference.get("apiGroup", ""), resource, event["verb"]
