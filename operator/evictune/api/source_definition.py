"""One metrics source, as the administrator defines it: where it is, and how it is asked.

Credentials are named as files, which are read anew for every request: a mounted Secret may be
rotated at any time. `PROMETHEUS_OPTIONS` is what the reference page is generated from.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from evictune.api.policy import DNS_LABEL
from evictune.api.quantity import FieldError, parse_duration

DEFAULT_TIMEOUT = 5.0
_TIMEOUT_LIMITS = (0.1, 60.0)
_URL = re.compile(r"^https?://[^/@?#\s]+(/[^@?#\s]*)?$")
# RFC 9110, sections 5.1 and 5.5.
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_TEXT = re.compile(r"([!-~\xa1-\xff]([ \t!-~\xa1-\xff]*[!-~\xa1-\xff])?)?")
_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# What a query is and when it is asked is not the administrator's to say.
_OWN_PARAMETERS = ("query", "time", "timeout")

PROMETHEUS_OPTIONS: Mapping[str, tuple[str, str]] = {
    "url": (
        "string",
        "**Required.** Address of the store, with the path its query API lies below: "
        "`/api/v1/query` is appended, with or without a slash at the end.",
    ),
    "timeout": (
        "duration",
        "Limit for all queries of one look together, 100ms to 60s; default 5s. Nothing is retried.",
    ),
    "headers": ("map", "Sent with every query, such as `X-Scope-OrgID: team-a`."),
    "headerFiles": ("map of files", "Headers whose values are secret: name to file."),
    "basicAuth": (
        "object",
        "`username`, and `passwordFile` that holds the password.",
    ),
    "bearerTokenFile": ("file", "Holds the token of `Authorization: Bearer`."),
    "caFile": (
        "file",
        "Certificates to trust instead of the usual ones, PEM. Verification cannot be switched "
        "off.",
    ),
    "certFile": ("file", "The operator's own certificate, PEM, for a store that asks for one."),
    "keyFile": ("file", "The key of certFile, PEM, without a passphrase."),
    "parameters": (
        "map",
        "Added to every query, for gateways: Thanos' `dedup`, `partial_response` or `max_source_"
        "resolution`, VictoriaMetrics' `extra_label`.",
    ),
    "fallback": (
        "string",
        "Name of a `direct` source that is read while this one does not answer or refuses. Without "
        "it the readings are then Unknown: the engines are never scraped unasked.",
    ),
    "labels": (
        "object",
        "The names of the labels that hold a pod's `namespace` and its name, `pod`, where the "
        "scrape configuration calls them differently, such as `pod: kubernetes_pod_name`.",
    ),
    "matchers": (
        "map",
        "Labels that a series must have, such as `cluster: eu-1`: in a store of several clusters a "
        "namespace and a pod's name are not enough.",
    ),
}
DIRECT_OPTIONS: Mapping[str, tuple[str, str]] = {
    "timeout": ("duration", "Limit for one engine's page, 100ms to 60s; default 5s."),
}


class SourceKind(StrEnum):
    """How a source gives its readings."""

    PROMETHEUS = "prometheus"
    DIRECT = "direct"


@dataclass(frozen=True)
class PodLabels:
    """The labels that tell which pod a series belongs to. matchers: labels that it must have."""

    namespace: str = "namespace"
    pod: str = "pod"
    matchers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class BasicAuth:
    """A user whose password a file holds."""

    username: str
    password_file: str


@dataclass(frozen=True)
class SourceDefinition:
    """A metrics source. `timeout` seconds, for one whole reading. `direct`: the engines' pages."""

    name: str
    kind: SourceKind
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    header_files: Mapping[str, str] = field(default_factory=dict)
    basic_auth: BasicAuth | None = None
    bearer_token_file: str | None = None
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    labels: PodLabels = field(default_factory=PodLabels)
    fallback: str | None = None
    timeout: float = DEFAULT_TIMEOUT


def parse_source(name: object, value: object) -> SourceDefinition:
    """The source of a configuration's entry. Raises FieldError."""
    path = f"sources.{name}"
    if not isinstance(name, str) or not re.search(DNS_LABEL, name):
        raise FieldError(path, name, "name a source with lower-case letters, digits and -")
    body = mapping(path, value)
    kinds = [kind.value for kind in SourceKind]
    if len(body) != 1 or next(iter(body)) not in kinds:
        raise FieldError(path, sorted(map(str, body)), f"give exactly one of {', '.join(kinds)}")
    kind = SourceKind(next(iter(body)))
    path = f"{path}.{kind}"
    options = mapping(path, body[kind.value])
    if kind is SourceKind.DIRECT:
        known(path, options, DIRECT_OPTIONS)
        return SourceDefinition(name, kind, timeout=_timeout(f"{path}.timeout", options))
    known(path, options, PROMETHEUS_OPTIONS)
    definition = _prometheus(name, path, options)
    _without_contradiction(path, definition)
    return definition


def check_fallbacks(sources: Mapping[str, SourceDefinition]) -> None:
    """Raise FieldError for a fallback that is no direct source."""
    direct = [name for name, source in sources.items() if source.kind is SourceKind.DIRECT]
    for name, source in sources.items():
        if source.fallback is not None and source.fallback not in direct:
            raise FieldError(
                f"sources.{name}.{source.kind}.fallback",
                source.fallback,
                f"name a direct source; there are: {', '.join(sorted(direct)) or 'none'}",
            )


def known(path: str, body: Mapping[str, Any], names: Mapping[str, Any] | tuple[str, ...]) -> None:
    """Refuse a field that is not among the names. Raises FieldError."""
    for name in body:
        if name not in names:
            where = f"{path}.{name}" if path else str(name)
            raise FieldError(where, "this field", f"it is not known; use {', '.join(names)}")


def mapping(path: str, value: object) -> Mapping[str, Any]:
    """An object's fields; none where it was left empty. Raises FieldError."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise FieldError(path, value, "write an object with its fields")
    return value


def _prometheus(name: str, path: str, options: Mapping[str, Any]) -> SourceDefinition:
    files = {
        key: _file(f"{path}.{key}", options.get(key))
        for key in ("bearerTokenFile", "caFile", "certFile", "keyFile")
    }
    return SourceDefinition(
        name,
        SourceKind.PROMETHEUS,
        url=_url(f"{path}.url", options.get("url")),
        headers=_headers(f"{path}.headers", options.get("headers")),
        header_files=_header_files(f"{path}.headerFiles", options.get("headerFiles")),
        basic_auth=_basic_auth(f"{path}.basicAuth", options.get("basicAuth")),
        bearer_token_file=files["bearerTokenFile"],
        ca_file=files["caFile"],
        cert_file=files["certFile"],
        key_file=files["keyFile"],
        parameters=_parameters(f"{path}.parameters", options.get("parameters")),
        labels=PodLabels(
            **_labels(f"{path}.labels", options.get("labels")),
            matchers=_matchers(f"{path}.matchers", options.get("matchers")),
        ),
        fallback=options.get("fallback"),
        timeout=_timeout(f"{path}.timeout", options),
    )


def _without_contradiction(path: str, definition: SourceDefinition) -> None:
    """Refuse options of which one would silently win over another."""
    if definition.key_file and not definition.cert_file:
        raise FieldError(f"{path}.keyFile", definition.key_file, "give its certFile too")
    if definition.cert_file and not definition.key_file:
        raise FieldError(f"{path}.certFile", definition.cert_file, "give its keyFile too")
    credentials = (definition.basic_auth, definition.bearer_token_file)
    sent = [*definition.headers, *definition.header_files]
    sent += ["Authorization" for each in credentials if each]
    for name in sent:
        if sum(name.lower() == other.lower() for other in sent) > 1:
            remedy = "give it once: in headers, headerFiles, basicAuth or bearerTokenFile"
            raise FieldError(path, name, remedy)


def _url(path: str, value: object) -> str:
    if isinstance(value, str) and _URL.match(value):
        # A trailing slash would double the one before api/v1.
        return value.rstrip("/")
    raise FieldError(
        path,
        value,
        "write an http or https address without credentials, such as "
        "http://prometheus:9090; credentials go into basicAuth, headers or bearerTokenFile",
    )


def _headers(path: str, value: object) -> dict[str, str]:
    body = mapping(path, value)
    for name, text in body.items():
        if not isinstance(name, str) or not isinstance(text, str):
            # The value may be a secret: it is not repeated.
            raise FieldError(f"{path}.{name}", type(text).__name__, "quote it: write a string")
        if not _HEADER_NAME.fullmatch(name) or not is_header_text(text):
            remedy = "a header is one line of Latin letters, digits and signs"
            raise FieldError(f"{path}.{name}", "its name or value", remedy)
    return dict(body)


def is_header_text(text: str) -> bool:
    """Whether a text can be a header's value."""
    return _HEADER_TEXT.fullmatch(text) is not None


def _header_files(path: str, value: object) -> dict[str, str]:
    found = {}
    for name, file in mapping(path, value).items():
        if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):
            raise FieldError(f"{path}.{name}", name, "write the name of a header")
        found[name] = _required_file(f"{path}.{name}", file)
    return found


def _basic_auth(path: str, value: object) -> BasicAuth | None:
    if value is None:
        return None
    body = mapping(path, value)
    known(path, body, ("username", "passwordFile"))
    username = body.get("username")
    # RFC 7617, section 2: a colon would end the user's name.
    if not isinstance(username, str) or not username or ":" in username:
        raise FieldError(f"{path}.username", username, "write a name without a colon")
    return BasicAuth(username, _required_file(f"{path}.passwordFile", body.get("passwordFile")))


def _parameters(path: str, value: object) -> dict[str, str]:
    body = mapping(path, value)
    for name, text in body.items():
        if name in _OWN_PARAMETERS:
            raise FieldError(f"{path}.{name}", text, "evictune sets this one itself")
        if not isinstance(name, str) or not isinstance(text, str):
            raise FieldError(f"{path}.{name}", text, 'quote it: write a string, such as "true"')
    return dict(body)


def _labels(path: str, value: object) -> dict[str, str]:
    body = mapping(path, value)
    known(path, body, ("namespace", "pod"))
    for name, label in body.items():
        if not isinstance(label, str) or not _LABEL.fullmatch(label):
            raise FieldError(f"{path}.{name}", label, "write the name of a label: A-Z, a-z, 0-9, _")
    return dict(body)


def _matchers(path: str, value: object) -> dict[str, str]:
    body = mapping(path, value)
    for name, text in body.items():
        if not isinstance(name, str) or not _LABEL.fullmatch(name) or not isinstance(text, str):
            raise FieldError(f"{path}.{name}", text, "write a label and its value, a string")
    return dict(body)


def _file(path: str, value: object) -> str | None:
    return None if value is None else _required_file(path, value)


def _required_file(path: str, value: object) -> str:
    if isinstance(value, str) and value.startswith("/"):
        return value
    raise FieldError(path, value, "write the absolute path of a file")


def _timeout(path: str, options: Mapping[str, Any]) -> float:
    if options.get("timeout") is None:
        return DEFAULT_TIMEOUT
    seconds = parse_duration(path, options["timeout"])
    low, high = _TIMEOUT_LIMITS
    if not low <= seconds <= high:
        raise FieldError(path, options["timeout"], "use 100ms to 60s")
    return seconds
