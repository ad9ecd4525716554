"""A namespace of a real API server with faked engines, and policies quick enough for a test."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping
from typing import Any, Self

import yaml
from evictune.act.knobs import parse_document
from evictune.api.crd import crd
from evictune.api.knobs import FILE_NAME, KnobDocument, config_map_name
from evictune.kube import MERGE_PATCH, ApiError, KubeApi, load_configuration, policies_path

from localcluster.controlplane import ControlPlane
from tests.support.operator_process import eventually

OPERATOR = "evictune"
DEFINITION = "evictionpolicies.evictune.io"


def install_crd(cluster: ControlPlane) -> None:
    """Apply the definition, and wait until the API server serves it."""
    definition = yaml.safe_dump(crd())
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", input=definition)
    cluster.await_definition(DEFINITION)


def remove_crd(cluster: ControlPlane) -> None:
    """Delete the definition, if there is one, with all policies, and wait until it is gone.

    The API server waits up to a minute for the policies, and then begins again.
    """
    cluster.kubectl("delete", "crd", DEFINITION, "--ignore-not-found", "--timeout=180s")


def policy(name: str, target: str, **spec: Any) -> dict[str, Any]:
    """A policy whose window, interval and waits last a second or a few."""
    behavior = {"interval": "1s", "settle": "0s", "cooldown": "1s", "knobTTL": "60s"}
    return {
        "apiVersion": "evictune.io/v1alpha1",
        "kind": "EvictionPolicy",
        "metadata": {"name": name},
        "spec": {
            "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target},
            "mode": "Auto",
            "slo": {
                "ttft": {
                    "quantile": "0.95",
                    "threshold": "800ms",
                    "window": "3s",
                    "minRequests": 20,
                }
            },
            "knobs": {"tlru": {"xiTokens": {"min": 32, "max": 4096}, "qHatTokens": Q_HAT}},
            **spec,
            "behavior": {**behavior, **spec.get("behavior", {})},
        },
    }


Q_HAT = {"min": 60, "max": 60}


class Scene:
    """A namespace, deleted at the end."""

    def __init__(self, cluster: ControlPlane) -> None:
        self.cluster = cluster
        self.api = KubeApi(load_configuration(str(cluster.kubeconfig)), user_agent="test")
        self.namespace = f"serve-{secrets.token_hex(3)}"

    def __enter__(self) -> Self:
        self.cluster.kubectl("create", "namespace", self.namespace)
        eventually(self._account, "the namespace's service account")
        return self

    def __exit__(self, *_: object) -> None:
        name = self.namespace
        self.cluster.kubectl("delete", "namespace", name, "--wait=false", "--ignore-not-found")

    def _account(self) -> Any:
        return self.api.get_or_none(f"/api/v1/namespaces/{self.namespace}/serviceaccounts/default")

    def create(self, body: Mapping[str, Any]) -> None:
        """Create a policy in the namespace."""
        self.api.request("POST", policies_path(self.namespace), body=body)

    def edit(self, name: str, **spec: Any) -> None:
        """Merge into a policy's spec."""
        path = f"{policies_path(self.namespace)}/{name}"
        self.api.request("PATCH", path, body={"spec": spec}, content_type=MERGE_PATCH)

    def delete(self, name: str) -> None:
        """Delete a policy."""
        self.api.request("DELETE", f"{policies_path(self.namespace)}/{name}")

    def get(self, name: str) -> dict[str, Any]:
        """A policy as it stands."""
        return self.api.get(f"{policies_path(self.namespace)}/{name}")

    def status(self, name: str) -> dict[str, Any]:
        """A policy's status; empty until it is written."""
        found: dict[str, Any] = self.get(name).get("status") or {}
        return found

    def reasons(self, name: str) -> list[str]:
        """The reasons of the decisions in status, oldest first, without mere diagnoses."""
        decisions = self.status(name).get("decisions") or ()
        return [each["reason"] for each in decisions if each["reason"] != "RegimeChanged"]

    def condition(self, name: str, kind: str) -> tuple[str, str, str]:
        """A condition's status, reason and message; empty words while it is absent."""
        for each in self.status(name).get("conditions") or ():
            if each["type"] == kind:
                return each["status"], each["reason"], each["message"]
        return ("", "", "")

    def config_map(self, target: str) -> dict[str, Any] | None:
        """The ConfigMap of a Deployment's knobs."""
        name = config_map_name("Deployment", target)
        return self.api.get_or_none(f"/api/v1/namespaces/{self.namespace}/configmaps/{name}")

    def document(self, target: str) -> KnobDocument | None:
        """The knob document in it."""
        body = self.config_map(target) or {}
        return parse_document((body.get("data") or {}).get(FILE_NAME))

    def events(self) -> list[dict[str, Any]]:
        """The Events of the namespace that are ours."""
        path = f"/api/v1/namespaces/{self.namespace}/events"
        found = self.api.items(path)
        return [each for each in found if (each.get("source") or {}).get("component") == OPERATOR]

    def writes(self) -> list[dict[str, Any]]:
        """What the operator, Kopf included, wrote into the namespace, by the audit log."""
        return [
            each
            for each in self.cluster.audit_events()
            if each["verb"] in ("create", "update", "patch", "delete", "deletecollection")
            and (each.get("objectRef") or {}).get("namespace") == self.namespace
            and each.get("userAgent", "").startswith(("evictune", "kopf/"))
        ]

    def revisions_written(self, target: str) -> list[int]:
        """Revisions of the knob document that the API server accepted, in order, from anyone."""
        name = config_map_name("Deployment", target)
        revisions = []
        for each in self.cluster.audit_events():
            reference = each.get("objectRef") or {}
            wanted = (reference.get("namespace"), reference.get("name")) == (self.namespace, name)
            accepted = (each.get("responseStatus") or {}).get("code", 500) < 300
            if wanted and accepted and each["verb"] == "patch":
                data = each["requestObject"]["data"][FILE_NAME]
                revisions.append(int(json.loads(data)["revision"]))
        return revisions


def gone(scene: Scene, target: str) -> bool:
    """Whether the ConfigMap of a target's knobs is collected."""
    return scene.config_map(target) is None


def namespace_gone(scene: Scene) -> bool:
    """Whether the namespace is deleted completely."""
    try:
        return scene.api.get_or_none(f"/api/v1/namespaces/{scene.namespace}") is None
    except ApiError:
        return False


def wait_exactly(seconds: float) -> None:
    """Let real time pass: for what must not happen."""
    time.sleep(seconds)
