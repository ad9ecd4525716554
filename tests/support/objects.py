"""Objects of one namespace, read as often as a test likes: no program is started for a look."""

from __future__ import annotations

import json
import urllib.error
from typing import Any

from localcluster.controlplane import ControlPlane

Object = dict[str, Any]

# Until an answer, on a machine that is busy.
SECONDS = 30.0
_COLLECTIONS = {
    "configmap": "/api/v1/namespaces/{}/configmaps",
    "deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "event": "/api/v1/namespaces/{}/events",
    "evp": "/apis/evictune.io/v1alpha1/namespaces/{}/evictionpolicies",
    "lease": "/apis/coordination.k8s.io/v1/namespaces/{}/leases",
    "pod": "/api/v1/namespaces/{}/pods",
}


class Objects:
    """What the API server has in a namespace now, to an administrator."""

    def __init__(self, cluster: ControlPlane, namespace: str) -> None:
        self._cluster = cluster
        self.namespace = namespace

    def get(self, kind: str, name: str) -> Object:
        """An object. Raises LookupError where there is none."""
        found = self.find(kind, name)
        if found is None:
            raise LookupError(f"no {kind} {self.namespace}/{name}")
        return found

    def find(self, kind: str, name: str) -> Object | None:
        """An object, or None."""
        try:
            return self._read(f"{_COLLECTIONS[kind]}/{name}")
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise
            return None

    def all(self, kind: str, *, leaving: bool = False) -> list[Object]:
        """All of a kind; without `leaving`, only what is not being deleted."""
        items: list[Object] = self._read(_COLLECTIONS[kind])["items"]
        return [each for each in items if leaving or "deletionTimestamp" not in each["metadata"]]

    def document(self, config_map: str) -> Object | None:
        """The knob document in a ConfigMap, if there is one."""
        found = self.find("configmap", config_map)
        return None if found is None else json.loads(found["data"]["knobs.json"])

    def rolled_out(self, deployment: str) -> bool:
        """Whether a Deployment's pods are all of its present template, and ready."""
        found = self.find("deployment", deployment)
        if found is None or _unseen(found):
            return False
        counts = ("replicas", "updatedReplicas", "readyReplicas")
        shown = {found["status"].get(each, 0) for each in counts}
        return shown == {found["spec"]["replicas"]}

    def _read(self, path: str) -> Object:
        found: Object = json.loads(self._cluster.get(path.format(self.namespace), SECONDS))
        return found


def _unseen(found: Object) -> bool:
    """Whether its controller has not looked at its present spec yet."""
    return bool(found["status"].get("observedGeneration") != found["metadata"]["generation"])
