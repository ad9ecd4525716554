"""Errors that end a command with one line: what is wrong, with which value, and what to do."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from evictune.api.policy import GROUP, PLURAL

if TYPE_CHECKING:
    from evictune.kube import ApiError

# "evictionpolicies.evictune.io is forbidden: User "x" cannot list resource "evictionpolicies" in
# API group "evictune.io" in the namespace "serve-a""
_FORBIDDEN = re.compile(
    r'User "(?P<user>[^"]*)" cannot (?P<verb>\w+) resource "(?P<resource>[^"]+)"'
    r'(?: in API group "(?P<group>[^"]*)")?'
    r'(?: in the namespace "(?P<namespace>[^"]+)")?'
)


class UsageError(Exception):
    """Wrong usage of the command line: exit code 2."""


class RefusedError(Exception):
    """What was asked for cannot be done: exit code 1, unless another is given."""

    def __init__(self, message: object, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


def explained(error: ApiError) -> str:
    """What the API server answered, for the person who asked, with the remedy."""
    if error.status == 401:
        return (
            "the API server does not accept the credentials: they may have expired; log in anew, "
            "or choose others with --context or --kubeconfig"
        )
    if error.status == 403:
        return _forbidden(error)
    if error.status == 0:
        return f"{error}; is the cluster up? Choose another with --context or --kubeconfig"
    return str(error)


def missing_definition() -> str:
    """The cluster does not serve the resource."""
    return f"the cluster does not know {PLURAL}.{GROUP}: evictune crd | kubectl apply -f -"


def _forbidden(error: ApiError) -> str:
    found = _FORBIDDEN.search(str(error))
    if found is None:
        return str(error)
    resource = found["resource"] + (f".{found['group']}" if found["group"] else "")
    where = f" in namespace {found['namespace']}" if found["namespace"] else " in all namespaces"
    return (
        f"{found['user']} may not {found['verb']} {resource}{where}: ask for a role with the verb "
        f"{found['verb']!r} on {resource}"
    )
