"""The operator's configuration: what the administrator, and nobody else, may set.

    sources:
      default:
        prometheus: {url: "https://prometheus:9090/prefix", timeout: 5s,
                     headers: {X-Scope-OrgID: a}, bearerTokenFile: /token, caFile: /ca.pem}
      engines: {direct: {timeout: 2s}}
    namespaces: []
    fleet: {mode: Auto}
    lease: {name: evictune, namespace: operators}
    metricsAddress: 0.0.0.0:9090
    livenessAddress: 0.0.0.0:8080

A policy names a source; it never names an address or a secret.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from evictune.api.policy import DNS_LABEL, DNS_SUBDOMAIN, FleetMode
from evictune.api.quantity import FieldError
from evictune.api.source_definition import (
    DEFAULT_TIMEOUT,
    BasicAuth,
    PodLabels,
    SourceDefinition,
    SourceKind,
    check_fallbacks,
    known,
    mapping,
    parse_source,
)
from evictune.api.yaml_text import Loader, problem_of

__all__ = [
    "DEFAULT_TIMEOUT",
    "BasicAuth",
    "OperatorConfiguration",
    "PodLabels",
    "SourceDefinition",
    "SourceKind",
    "parse_configuration",
]

_ADDRESS = re.compile(r"^(?P<host>\[[0-9a-fA-F:]+\]|[^:\s]+):(?P<port>[0-9]{1,5})$")

CONFIGURATION_OPTIONS: Mapping[str, tuple[str, str]] = {
    "sources": (
        "map",
        "Where readings come from: a name, which policies use, to `prometheus` or `direct`. "
        "Default: `default`, the engines' own pages.",
    ),
    "namespaces": ("list", "The namespaces whose policies are followed; empty: all."),
    "fleet": (
        "object",
        "`mode`, the most that any policy may do. `Auto` (default): each policy's own spec.mode "
        "counts. `Suspend`: no change is begun; values in force stay and are renewed. "
        "`Recommend`: nothing but status and Events is written; values in force run out.",
    ),
    "lease": (
        "object",
        "The Lease whose holder acts: `name` (default `evictune`) and `namespace` (default: the "
        "operator's own).",
    ),
    "metricsAddress": ("HOST:PORT", "Where the operator's own series are; default 0.0.0.0:9090."),
    "livenessAddress": ("HOST:PORT", "Where its liveness probe is; default 0.0.0.0:8080."),
}
_EVERY_HOST = frozenset(("0.0.0.0", "[::]"))
DIRECT_DEFAULT = SourceDefinition("default", SourceKind.DIRECT)


@dataclass(frozen=True)
class OperatorConfiguration:
    """What the operator is started with. `namespaces` empty: all.

    Of the operators with one lease (`lease_namespace` empty: the operator's own), one acts.
    """

    sources: Mapping[str, SourceDefinition] = field(
        default_factory=lambda: {DIRECT_DEFAULT.name: DIRECT_DEFAULT}
    )
    namespaces: tuple[str, ...] = ()
    fleet_mode: FleetMode = FleetMode.AUTO
    lease_name: str = "evictune"
    lease_namespace: str = ""
    metrics_address: str = "0.0.0.0:9090"
    liveness_address: str = "0.0.0.0:8080"


def parse_configuration(text: str) -> OperatorConfiguration:
    """The configuration of a YAML text; an empty one: direct scrape. Raises FieldError."""
    try:
        document = yaml.load(text, Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        # ValueError: what YAML takes for a date and is none.
        where, problem = problem_of(error)
        place = where or f"{len(text)} characters"
        raise FieldError("configuration", place, f"write valid YAML: {problem}") from error
    body = mapping("configuration", document)
    known("", body, CONFIGURATION_OPTIONS)
    defaults = OperatorConfiguration()
    lease = mapping("lease", body.get("lease"))
    known("lease", lease, ("name", "namespace"))
    metrics = _address("metricsAddress", body, defaults.metrics_address)
    liveness = _address("livenessAddress", body, defaults.liveness_address)
    if _clash(metrics, liveness):
        raise FieldError("livenessAddress", liveness, f"metricsAddress {metrics!r} takes its port")
    return OperatorConfiguration(
        sources=_sources(body.get("sources")) or defaults.sources,
        namespaces=_namespaces(body.get("namespaces")),
        fleet_mode=_fleet_mode(body.get("fleet")),
        lease_name=_name("lease.name", lease.get("name"), DNS_SUBDOMAIN, defaults.lease_name),
        lease_namespace=_name("lease.namespace", lease.get("namespace"), DNS_LABEL, ""),
        metrics_address=metrics,
        liveness_address=liveness,
    )


def _sources(value: object) -> dict[str, SourceDefinition]:
    body = mapping("sources", value)
    sources = {name: parse_source(name, body[name]) for name in body}
    check_fallbacks(sources)
    return sources


def _namespaces(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise FieldError("namespaces", value, "write a list of names; empty: all namespaces")
    for name in value:
        if not re.search(DNS_LABEL, name):
            raise FieldError("namespaces", name, "write names of namespaces: a-z, 0-9 and -")
    return tuple(value)


def _fleet_mode(value: object) -> FleetMode:
    body = mapping("fleet", value)
    known("fleet", body, ("mode",))
    mode = body.get("mode")
    if mode is None:
        return FleetMode.AUTO
    if mode not in list(FleetMode):
        raise FieldError("fleet.mode", mode, f"write one of {', '.join(FleetMode)}")
    return FleetMode(mode)


def _name(path: str, value: object, pattern: str, default: str) -> str:
    """The name of an object; the default where it was left empty."""
    if value is None or value == "":
        return default
    if isinstance(value, str) and re.search(pattern, value):
        return value
    raise FieldError(path, value, "write a name: a-z, 0-9 and -")


def _address(name: str, body: Mapping[str, Any], default: str) -> str:
    value = body.get(name, default)
    found = _ADDRESS.match(value) if isinstance(value, str) else None
    if not found or int(found["port"]) > 65535:
        raise FieldError(name, value, 'write "HOST:PORT", such as "0.0.0.0:9090"')
    return str(value)


def _clash(one: str, other: str) -> bool:
    """Whether two servers cannot both listen there. Port 0: each gets a free one."""
    (host, _, port), (other_host, _, other_port) = one.rpartition(":"), other.rpartition(":")
    same_host = host == other_host or not _EVERY_HOST.isdisjoint((host, other_host))
    return same_host and int(port) == int(other_port) != 0
