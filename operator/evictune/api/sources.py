"""The operator's configuration: what the administrator, and nobody else, may set.

    sources:
      default:
        prometheus: {url: "http://prometheus:9090/prefix", timeout: 5s,
                     headers: {X-Scope-OrgID: a}, bearerTokenFile: /token, caFile: /ca.pem}
      engines: {direct: {timeout: 2s}}
    namespaces: []
    metricsAddress: 0.0.0.0:9090
    livenessAddress: 0.0.0.0:8080

A policy names a source; it never names an address or a secret.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import yaml

from evictune.api.policy import DNS_LABEL
from evictune.api.quantity import FieldError, parse_duration

DEFAULT_TIMEOUT = 5.0
_TIMEOUT_LIMITS = (0.1, 60.0)
_URL = re.compile(r"^https?://[^/@?#\s]+(/[^@?#\s]*)?$")
# RFC 9110, sections 5.1 and 5.5.
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_TEXT = re.compile(r"([!-~\xa1-\xff]([ \t!-~\xa1-\xff]*[!-~\xa1-\xff])?)?")
_ADDRESS = re.compile(r"^(?P<host>\[[0-9a-fA-F:]+\]|[^:\s]+):(?P<port>[0-9]{1,5})$")


class SourceKind(StrEnum):
    """How a source gives its readings."""

    PROMETHEUS = "prometheus"
    DIRECT = "direct"


@dataclass(frozen=True)
class SourceDefinition:
    """A metrics source. `timeout` seconds, for one whole reading. `direct`: the engines' pages."""

    name: str
    kind: SourceKind
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    bearer_token_file: str | None = None
    ca_file: str | None = None
    timeout: float = DEFAULT_TIMEOUT


DIRECT_DEFAULT = SourceDefinition("default", SourceKind.DIRECT)


@dataclass(frozen=True)
class OperatorConfiguration:
    """What the operator is started with. `namespaces` empty: all."""

    sources: Mapping[str, SourceDefinition] = field(
        default_factory=lambda: {DIRECT_DEFAULT.name: DIRECT_DEFAULT}
    )
    namespaces: tuple[str, ...] = ()
    metrics_address: str = "0.0.0.0:9090"
    liveness_address: str = "0.0.0.0:8080"


def parse_configuration(text: str) -> OperatorConfiguration:
    """The configuration of a YAML text; an empty one: direct scrape. Raises FieldError."""
    try:
        document = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        # ValueError: what YAML takes for a date and is none.
        problem = " ".join(str(error).split())
        raise FieldError("configuration", text[:40], f"write valid YAML: {problem}") from error
    body = _mapping("configuration", document)
    _known("", body, ("sources", "namespaces", "metricsAddress", "livenessAddress"))
    defaults = OperatorConfiguration()
    return OperatorConfiguration(
        sources=_sources(body.get("sources")) or defaults.sources,
        namespaces=_namespaces(body.get("namespaces")),
        metrics_address=_address("metricsAddress", body, defaults.metrics_address),
        liveness_address=_address("livenessAddress", body, defaults.liveness_address),
    )


def _sources(value: object) -> dict[str, SourceDefinition]:
    body = _mapping("sources", value)
    return {name: _source(name, body[name]) for name in body}


def _source(name: object, value: object) -> SourceDefinition:
    path = f"sources.{name}"
    if not isinstance(name, str) or not re.search(DNS_LABEL, name):
        raise FieldError(path, name, "name a source with lower-case letters, digits and -")
    body = _mapping(path, value)
    kinds = [kind.value for kind in SourceKind]
    if len(body) != 1 or next(iter(body)) not in kinds:
        raise FieldError(path, sorted(map(str, body)), f"give exactly one of {', '.join(kinds)}")
    kind = SourceKind(next(iter(body)))
    options = _mapping(f"{path}.{kind}", body[kind.value])
    if kind is SourceKind.DIRECT:
        _known(f"{path}.{kind}", options, ("timeout",))
        return SourceDefinition(name, kind, timeout=_timeout(path, kind, options))
    return _prometheus(name, f"{path}.{kind}", options)


def _prometheus(name: str, path: str, options: Mapping[str, Any]) -> SourceDefinition:
    _known(path, options, ("url", "timeout", "headers", "bearerTokenFile", "caFile"))
    return SourceDefinition(
        name,
        SourceKind.PROMETHEUS,
        url=_url(f"{path}.url", options.get("url")),
        headers=_headers(f"{path}.headers", options.get("headers")),
        bearer_token_file=_file(f"{path}.bearerTokenFile", options.get("bearerTokenFile")),
        ca_file=_file(f"{path}.caFile", options.get("caFile")),
        timeout=_timeout(f"sources.{name}", SourceKind.PROMETHEUS, options),
    )


def _url(path: str, value: object) -> str:
    if isinstance(value, str) and _URL.match(value):
        # A trailing slash would double the one before api/v1.
        return value.rstrip("/")
    raise FieldError(
        path,
        value,
        "write an http or https address without credentials, such as "
        "http://prometheus:9090; credentials go into headers or bearerTokenFile",
    )


def _headers(path: str, value: object) -> dict[str, str]:
    body = _mapping(path, value)
    for name, text in body.items():
        if not isinstance(name, str) or not isinstance(text, str):
            # The value may be a secret: it is not repeated.
            raise FieldError(f"{path}.{name}", type(text).__name__, "quote it: write a string")
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_TEXT.fullmatch(text):
            remedy = "a header is one line of Latin letters, digits and signs"
            raise FieldError(f"{path}.{name}", "its name or value", remedy)
    return dict(body)


def _file(path: str, value: object) -> str | None:
    if value is None or (isinstance(value, str) and value.startswith("/")):
        return value
    raise FieldError(path, value, "write the absolute path of a file")


def _timeout(path: str, kind: SourceKind, options: Mapping[str, Any]) -> float:
    if options.get("timeout") is None:
        return DEFAULT_TIMEOUT
    where = f"{path}.{kind}.timeout"
    seconds = parse_duration(where, options["timeout"])
    low, high = _TIMEOUT_LIMITS
    if not low <= seconds <= high:
        raise FieldError(where, options["timeout"], "use 100ms to 60s")
    return seconds


def _namespaces(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise FieldError("namespaces", value, "write a list of names; empty: all namespaces")
    for name in value:
        if not re.search(DNS_LABEL, name):
            raise FieldError("namespaces", name, "write names of namespaces: a-z, 0-9 and -")
    return tuple(value)


def _address(name: str, body: Mapping[str, Any], default: str) -> str:
    value = body.get(name, default)
    found = _ADDRESS.match(value) if isinstance(value, str) else None
    if not found or int(found["port"]) > 65535:
        raise FieldError(name, value, 'write "HOST:PORT", such as "0.0.0.0:9090"')
    return str(value)


def _known(path: str, body: Mapping[str, Any], names: tuple[str, ...]) -> None:
    for name in body:
        if name not in names:
            where = f"{path}.{name}" if path else str(name)
            raise FieldError(where, "this field", f"it is not known; use {', '.join(names)}")


def _mapping(path: str, value: object) -> Mapping[str, Any]:
    """An object's fields; none where it was left empty."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise FieldError(path, value, "write an object with its fields")
    return value
