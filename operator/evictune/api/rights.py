"""What the operator may do, and nothing more: the chart grants it, `evictune check` asks for it."""

from __future__ import annotations

from dataclasses import dataclass

from evictune.api.policy import GROUP, PLURAL


@dataclass(frozen=True)
class Right:
    """A verb on a resource, such as `patch` on `evictionpolicies/status`; `name`: of one only."""

    group: str
    resource: str
    verb: str
    name: str = ""

    def __str__(self) -> str:
        """Such as "patch evictionpolicies.evictune.io/status", as kubectl writes it."""
        resource, slash, subresource = self.resource.partition("/")
        group = f".{self.group}" if self.group else ""
        name = f" {self.name}" if self.name else ""
        return f"{self.verb} {resource}{group}{slash}{subresource}{name}"


_VERBS = {
    (GROUP, PLURAL): ("get", "list", "watch"),
    (GROUP, f"{PLURAL}/status"): ("patch",),
    ("apps", "deployments"): ("get",),
    ("apps", "statefulsets"): ("get",),
    ("apps", "replicasets"): ("list",),
    ("", "pods"): ("list",),
    # The knob documents, by server-side apply: it creates what is not there.
    ("", "configmaps"): ("get", "create", "patch"),
    ("", "events"): ("create",),
}
# In every namespace whose policies are followed.
RIGHTS = tuple(Right(*kind, verb) for kind, verbs in _VERBS.items() for verb in verbs)
# Only where all namespaces are followed: by these Kopf notices a definition installed later.
CLUSTER_RIGHTS = tuple(
    Right("apiextensions.k8s.io", "customresourcedefinitions", verb) for verb in ("list", "watch")
)


def lease_rights(name: str) -> tuple[Right, ...]:
    """In the Lease's namespace. What is created has no name yet that a rule could name."""
    kind = ("coordination.k8s.io", "leases")
    return (Right(*kind, "get", name), Right(*kind, "update", name), Right(*kind, "create"))
