"""Which cluster, which namespace, which policies: the same rules as kubectl's.

--kubeconfig, else $KUBECONFIG, else the pod's service account, else ~/.kube/config; --context, else
the current one; -n, else the context's namespace, else "default".
"""

from __future__ import annotations

import difflib
import os
import re
from argparse import Namespace
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubernetes.config import ConfigException
from kubernetes.config.kube_config import KUBE_CONFIG_DEFAULT_LOCATION, KubeConfigMerger

from evictune.api.policy import DNS_LABEL, DNS_SUBDOMAIN, KIND
from evictune.console.refusals import RefusedError, UsageError, missing_definition
from evictune.kube import ApiError, KubeApi, load_configuration, policies_path

_ACCOUNT_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_NAMES_SHOWN = 5
_NO_SUCH_CONTEXT = "contexts list"  # in the client's message

Json = dict[str, Any]


@dataclass(frozen=True)
class Place:
    """A cluster and the namespace that names without one mean."""

    api: KubeApi
    namespace: str


def place_of(options: Namespace) -> Place:
    """The place that the options mean, which also name policies.

    Raises ConfigException, UsageError, RefusedError.
    """
    _check_usage(options)
    return connect(options)


def connect(options: Namespace) -> Place:
    """The place that the options mean. Raises ConfigException, UsageError, RefusedError."""
    if options.namespace is not None and not re.fullmatch(DNS_LABEL, options.namespace):
        raise UsageError(f"-n {options.namespace!r} cannot be a namespace: write a-z, 0-9 and -")
    kubeconfig = options.kubeconfig or os.environ.get("KUBECONFIG") or None
    try:
        configuration = load_configuration(kubeconfig, options.context)
    except ConfigException as error:
        if options.context is None or _NO_SUCH_CONTEXT not in str(error):
            raise
        known = ", ".join(sorted(_contexts(kubeconfig)[0])) or "none"
        told = f"--context {options.context!r} is not in the kubeconfig: it has {known}"
        raise RefusedError(told) from error
    namespace = options.namespace or _default_namespace(kubeconfig, options.context)
    return Place(KubeApi(configuration, user_agent="evictune-cli"), namespace)


def _default_namespace(kubeconfig: str | None, context: str | None) -> str:
    namespaces, current = _contexts(kubeconfig)
    if namespaces or not _ACCOUNT_NAMESPACE.exists():
        return namespaces.get(context or current) or "default"
    return _ACCOUNT_NAMESPACE.read_text().strip()


def _contexts(kubeconfig: str | None) -> tuple[dict[str, str], str]:
    """The namespace that each context names, and which context is the current one.

    Of a kubeconfig from which a connection was made; nothing where it was made from a pod.
    """
    merged = KubeConfigMerger(kubeconfig or KUBE_CONFIG_DEFAULT_LOCATION).config
    if merged is None:
        return {}, ""
    # A list of nodes, each of which remembers the file it came from.
    contexts = [each.value for each in merged.value.get("contexts") or ()]
    namespaces = {each["name"]: each["context"].get("namespace", "") for each in contexts}
    return namespaces, str(merged.value.get("current-context") or "")


def _check_usage(options: Namespace) -> None:
    """What is wrong whatever the cluster says. Raises UsageError."""
    given = options.namespace
    if options.all_namespaces and (options.policies or given):
        other = "the names" if options.policies else "-n"
        raise UsageError(f"-A means every policy of the cluster: leave out -A or {other}")
    for text in options.policies:
        namespace, slash, name = text.rpartition("/")
        if not re.fullmatch(DNS_SUBDOMAIN, name) or (
            slash and not re.fullmatch(DNS_LABEL, namespace)
        ):
            raise UsageError(
                f"policy {text!r}: write NAMESPACE/NAME, such as serving/chat-8b, or NAME"
            )
        if slash and given not in (None, namespace):
            raise UsageError(f"policy {text!r} and -n {given} are two namespaces: leave out one")


def find(place: Place, options: Namespace) -> list[Json]:
    """The policies named; without a name, those of the namespace, or with -A of all.

    Raises RefusedError, ApiError.
    """
    if options.policies:
        split = [text.rpartition("/") for text in options.policies]
        wanted = [(namespace or place.namespace, name) for namespace, _, name in split]
        return [_get(place.api, *each) for each in dict.fromkeys(wanted)]
    return listed(place, None if options.all_namespaces else place.namespace)


def listed(place: Place, namespace: str | None) -> list[Json]:
    """The policies of the namespace, or of all, by name. Raises RefusedError, ApiError."""
    try:
        found = list(place.api.items(policies_path(namespace)))
    except ApiError as error:
        if error.status == 404:
            raise RefusedError(missing_definition()) from error
        raise
    return sorted(found, key=lambda body: _key(body))


def policy_names(prefix: str, parsed_args: Namespace, **_: Any) -> list[str]:
    """Names that may follow: NAMESPACE/NAME once a slash is written, else NAME.

    Without a cluster there are none: a person who is typing is not told of errors.
    """
    given = ("namespace", "context", "kubeconfig")
    options = Namespace(
        **{name: getattr(parsed_args, name, None) for name in given},
        policies=[],
        all_namespaces=False,
    )
    try:
        place = place_of(options)
        bodies = listed(place, None if "/" in prefix else place.namespace)
    except (ApiError, ConfigException, OSError, RefusedError, UsageError):
        return []
    metadata = [each["metadata"] for each in bodies]
    if "/" in prefix:
        return [f"{each['namespace']}/{each['name']}" for each in metadata]
    return [str(each["name"]) for each in metadata]


def _get(api: KubeApi, namespace: str, name: str) -> Json:
    body = api.get_or_none(f"{policies_path(namespace)}/{name}")
    if body is None:
        raise RefusedError(_not_there(api, namespace, name))
    return body


def _not_there(api: KubeApi, namespace: str, name: str) -> str:
    """That there is no such policy, with the names that may have been meant."""
    told = f"there is no {KIND} {name} in namespace {namespace}"
    try:
        there = [_key(each) for each in api.items(policies_path(namespace))]
    except ApiError as error:
        if error.status == 404:
            return missing_definition()
        return told  # May not list, or the server is gone by now: the fault itself is known.
    return told + _suggestion(name, there, _elsewhere(api, name))


def _elsewhere(api: KubeApi, name: str) -> list[str]:
    """NAMESPACE/NAME of policies with that name, where the user may list all."""
    try:
        keys = [_key(each) for each in api.items(policies_path(None))]
    except ApiError:
        return []
    return ["/".join(key) for key in keys if key[1] == name]


def _suggestion(name: str, there: Iterable[tuple[str, str]], elsewhere: Sequence[str]) -> str:
    names = sorted(each for _, each in there)
    if elsewhere:
        return f"; did you mean {_or(elsewhere)}?"
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    if near:
        return f"; did you mean {_or(near)}?"
    if names:
        return f"; it has {', '.join(names[:_NAMES_SHOWN])}{', ...' * (len(names) > _NAMES_SHOWN)}"
    return "; it has none: -n chooses another namespace, -A lists all"


def _or(names: Sequence[str]) -> str:
    return " or ".join(names[:_NAMES_SHOWN])


def _key(body: Json) -> tuple[str, str]:
    metadata = body["metadata"]
    return str(metadata.get("namespace", "")), str(metadata["name"])
