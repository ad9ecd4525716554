"""A workload as its controller reports it: replicas, and whether a rollout is under way.

Works on the objects of the apps/v1 API as plain dictionaries. The conditions for "complete" are
those of `kubectl rollout status` (kubectl/pkg/polymorphichelpers/rollout_status.go).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from evictune.api.observation import TargetState

Object = Mapping[str, Any]


def workload_state(kind: str, workload: Object, ready_pods: int) -> TargetState:
    """Replicas wanted, pods ready, and whether pods are being replaced or their number changed."""
    replacing = _REPLACING[kind](workload)
    rolling = replacing or _UNAVAILABLE[kind](workload)
    return TargetState(
        found=True,
        desired_replicas=_desired(workload),
        ready_replicas=ready_pods,
        rollout_in_progress=bool(rolling),
        message=rolling,
        replacing=bool(replacing),
    )


def selector_text(workload: Object) -> str:
    """spec.selector as the API's labelSelector parameter."""
    selector = workload["spec"]["selector"]
    terms = [f"{key}={value}" for key, value in (selector.get("matchLabels") or {}).items()]
    terms += [_expression(term) for term in selector.get("matchExpressions") or ()]
    return ",".join(terms)


def _expression(term: Object) -> str:
    key, operator, values = term["key"], term["operator"], term.get("values") or ()
    if operator == "Exists":
        return str(key)
    if operator == "DoesNotExist":
        return f"!{key}"
    return f"{key} {'in' if operator == 'In' else 'notin'} ({','.join(values)})"


def _desired(workload: Object) -> int:
    replicas = workload["spec"].get("replicas")
    return 1 if replicas is None else int(replicas)


def _unobserved(workload: Object) -> bool:
    observed = workload.get("status", {}).get("observedGeneration", 0)
    return bool(observed < workload["metadata"].get("generation", 0))


def _deployment_replacing(workload: Object) -> str:
    """Which pods are still to come or to go, in words; empty when none are."""
    status, desired = workload.get("status", {}), _desired(workload)
    total, updated = status.get("replicas", 0), status.get("updatedReplicas", 0)
    if _unobserved(workload):
        return "the latest change of the Deployment is not yet acted upon"
    if updated < desired:
        return f"{updated} of {desired} replicas are of the latest template"
    if total > updated or total != desired:
        return f"{total} replicas exist, {desired} are wanted"
    return ""


def _deployment_unavailable(workload: Object) -> str:
    status = workload.get("status", {})
    available, updated = status.get("availableReplicas", 0), status.get("updatedReplicas", 0)
    return f"{available} of {updated} replicas are available" if available < updated else ""


def _stateful_set_replacing(workload: Object) -> str:
    """Which pods are still to come or to go, in words; empty when none are."""
    status, desired = workload.get("status", {}), _desired(workload)
    strategy = workload["spec"].get("updateStrategy") or {}
    partition = (strategy.get("rollingUpdate") or {}).get("partition") or 0
    if _unobserved(workload):
        return "the latest change of the StatefulSet is not yet acted upon"
    if status.get("replicas", 0) != desired:
        return f"{status.get('replicas', 0)} replicas exist, {desired} are wanted"
    updated = status.get("updatedReplicas", 0)
    changed = status.get("updateRevision") != status.get("currentRevision")
    if strategy.get("type") != "OnDelete" and changed and updated < desired - partition:
        return f"{updated} of {desired - partition} replicas are of the latest template"
    return ""


def _stateful_set_unavailable(workload: Object) -> str:
    ready, desired = workload.get("status", {}).get("readyReplicas", 0), _desired(workload)
    return f"{ready} of {desired} replicas are ready" if ready < desired else ""


_REPLACING: Mapping[str, Callable[[Object], str]] = {
    "Deployment": _deployment_replacing,
    "StatefulSet": _stateful_set_replacing,
}
_UNAVAILABLE: Mapping[str, Callable[[Object], str]] = {
    "Deployment": _deployment_unavailable,
    "StatefulSet": _stateful_set_unavailable,
}
