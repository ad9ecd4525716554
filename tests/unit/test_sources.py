"""The operator's configuration: what the administrator may set, and how mistakes are told."""

from __future__ import annotations

import pytest
from evictune.api.policy import FleetMode
from evictune.api.quantity import FieldError
from evictune.api.source_definition import PROMETHEUS_OPTIONS, BasicAuth, PodLabels
from evictune.api.sources import CONFIGURATION_OPTIONS, SourceKind, parse_configuration

HEADERS = "sources.a.prometheus.headers"
FULL = """
sources:
  default:
    prometheus:
      url: http://prometheus:9090/prefix/
      timeout: 2s
      headers: {X-Scope-OrgID: team-a}
      headerFiles: {X-Api-Key: /etc/key}
      bearerTokenFile: /var/run/token
      caFile: /etc/ca.pem
      certFile: /etc/tls.crt
      keyFile: /etc/tls.key
      parameters: {dedup: "true"}
      labels: {pod: kubernetes_pod_name}
      matchers: {cluster: eu-1}
  engines: {direct: {timeout: 500ms}}
namespaces: [serve-a]
fleet: {mode: Suspend}
lease: {name: evictune-a, namespace: operators}
metricsAddress: "[::1]:9090"
livenessAddress: 127.0.0.1:8080
"""


def test_everything_arrives() -> None:
    configuration = parse_configuration(FULL)
    default = configuration.sources["default"]
    assert default.kind is SourceKind.PROMETHEUS
    # A trailing slash would give http://prometheus:9090/prefix//api/v1.
    assert default.url == "http://prometheus:9090/prefix"
    assert (default.timeout, dict(default.headers)) == (2.0, {"X-Scope-OrgID": "team-a"})
    assert (default.bearer_token_file, default.ca_file) == ("/var/run/token", "/etc/ca.pem")
    assert (default.cert_file, default.key_file) == ("/etc/tls.crt", "/etc/tls.key")
    assert dict(default.header_files) == {"X-Api-Key": "/etc/key"}
    assert dict(default.parameters) == {"dedup": "true"}
    assert default.labels == PodLabels("namespace", "kubernetes_pod_name", {"cluster": "eu-1"})
    engines = configuration.sources["engines"]
    assert (engines.name, engines.kind, engines.timeout) == ("engines", SourceKind.DIRECT, 0.5)
    assert configuration.namespaces == ("serve-a",)
    assert configuration.fleet_mode is FleetMode.SUSPEND
    assert (configuration.lease_name, configuration.lease_namespace) == ("evictune-a", "operators")
    assert configuration.metrics_address == "[::1]:9090"


def test_the_lease_has_a_name_and_lies_in_the_operators_namespace() -> None:
    configuration = parse_configuration("lease: {name:, namespace: ''}")
    assert (configuration.lease_name, configuration.lease_namespace) == ("evictune", "")


@pytest.mark.parametrize("text", ["", "fleet:", "fleet: {}", "fleet: {mode:}"])
def test_the_fleet_switch_leaves_it_to_the_policies_unless_it_is_turned(text: str) -> None:
    assert parse_configuration(text).fleet_mode is FleetMode.AUTO


@pytest.mark.parametrize("text", ["", "sources: {}", "sources:", "namespaces: []", "namespaces:"])
def test_without_sources_the_engines_are_scraped(text: str) -> None:
    configuration = parse_configuration(text)
    assert configuration.sources["default"].kind is SourceKind.DIRECT
    assert configuration.namespaces == ()


@pytest.mark.parametrize("options", ["", "{}"])
def test_a_direct_source_needs_no_options(options: str) -> None:
    sources = parse_configuration(f"sources: {{a: {{direct: {options}}}}}").sources
    assert sources["a"].timeout == 5.0


@pytest.mark.parametrize(
    ("text", "field", "remedy"),
    [
        ("[1, 2]", "configuration", "object"),
        ("a: [", "configuration", "valid YAML"),
        ("namespaces: []\nfleet:\n  mode: Auto\n  mode: Suspend\n", "configuration", "given twice"),
        ("metricsAddress: 0.0.0.0:8080", "livenessAddress", "takes its port"),
        ("metricsAddress: 10.0.0.1:8080", "livenessAddress", "takes its port"),
        ("lease: {name: A B}", "lease.name", "a-z"),
        ("lease: {namespace: a.b}", "lease.namespace", "a-z"),
        ("lease: {holder: a}", "lease.holder", "name, namespace"),
        ("lease: evictune", "lease", "object"),
        ("fleet: Suspend", "fleet", "object"),
        ("fleet: {mode: Off}", "fleet.mode", "Auto, Suspend, Recommend"),
        ("fleet: {suspend: true}", "fleet.suspend", "mode"),
        ("source: {}", "source", "sources"),
        ("sources: {Upper: {direct: {}}}", "sources.Upper", "lower-case"),
        ("sources: {a: {}}", "sources.a", "exactly one of"),
        ("sources: {a: {graphite: {}}}", "sources.a", "exactly one of"),
        ("sources: {a: {prometheus: {}}}", "sources.a.prometheus.url", "http://prometheus:9090"),
        ("sources: {a: {prometheus: {url: 'ftp://x'}}}", "sources.a.prometheus.url", "http"),
        (
            "sources: {a: {prometheus: {url: 'http://me:secret@x'}}}",
            "sources.a.prometheus.url",
            "without credentials",
        ),
        (
            "sources: {a: {prometheus: {url: 'http://x', token: y}}}",
            "sources.a.prometheus.token",
            "bearerTokenFile",
        ),
        (
            "sources: {a: {prometheus: {url: 'http://x', caFile: ca.pem}}}",
            "sources.a.prometheus.caFile",
            "absolute",
        ),
        ("sources: {a: {direct: {timeout: 5}}}", "sources.a.direct.timeout", "duration"),
        ("sources: {a: {direct: {timeout: 10m}}}", "sources.a.direct.timeout", "60s"),
        ("false", "configuration", "object"),
        ("sources: []", "sources", "object"),
        ("sources: {a: {direct: []}}", "sources.a.direct", "object"),
        ("sources: {a: {prometheus: {url: 'http://x', headers: ''}}}", HEADERS, "object"),
        ("namespaces: {}", "namespaces", "list"),
        ("namespaces: serve", "namespaces", "list"),
        ("namespaces: [a b]", "namespaces", "names of namespaces"),
        ("namespaces: [2026-13-45]", "configuration", "month"),
        (
            'sources: {a: {prometheus: {url: "http://x", headers: {A: "b\\nc: d"}}}}',
            "sources.a.prometheus.headers.A",
            "one line",
        ),
        (
            'sources: {a: {prometheus: {url: "http://x", headers: {A b: c}}}}',
            "sources.a.prometheus.headers.A b",
            "one line",
        ),
        ("metricsAddress: 9090", "metricsAddress", "HOST:PORT"),
        ("livenessAddress: 'host:99999'", "livenessAddress", "HOST:PORT"),
    ],
)
def test_mistakes_are_named(text: str, field: str, remedy: str) -> None:
    with pytest.raises(FieldError) as caught:
        parse_configuration(text)
    assert caught.value.field == field
    assert remedy in caught.value.remedy


def test_a_header_that_cannot_be_used_is_not_repeated() -> None:
    """Its value may be a secret."""
    with pytest.raises(FieldError) as caught:
        parse_configuration(
            "sources: {a: {prometheus: {url: 'http://x', headers: {Authorization: 123456}}}}"
        )
    assert caught.value.field == "sources.a.prometheus.headers.Authorization"
    assert "123456" not in str(caught.value)


def prometheus(options: str) -> str:
    return f"sources: {{a: {{prometheus: {{url: 'https://x', {options}}}}}}}"


def test_a_user_and_the_file_of_a_password() -> None:
    text = prometheus("basicAuth: {username: me, passwordFile: /etc/password}")
    (source,) = parse_configuration(text).sources.values()
    assert source.basic_auth == BasicAuth("me", "/etc/password")


@pytest.mark.parametrize(
    ("options", "field", "remedy"),
    [
        ("certFile: /c", "certFile", "keyFile"),
        ("keyFile: /k", "keyFile", "certFile"),
        ("basicAuth: {username: me}", "basicAuth.passwordFile", "absolute path"),
        ("basicAuth: {username: 'm:e', passwordFile: /p}", "basicAuth.username", "colon"),
        ("basicAuth: {username: me, password: x}", "basicAuth.password", "not known"),
        ("parameters: {time: '1'}", "parameters.time", "itself"),
        ("parameters: {dedup: true}", "parameters.dedup", "quote it"),
        ("labels: {pod: kubernetes-pod}", "labels.pod", "name of a label"),
        ("labels: {node: x}", "labels.node", "not known"),
        ("matchers: {cluster: 1}", "matchers.cluster", "a string"),
        ("matchers: {clus-ter: a}", "matchers.clus-ter", "a label"),
        ("headerFiles: {X-Key: key}", "headerFiles.X-Key", "absolute path"),
        ("headerFiles: {X Key: /key}", "headerFiles.X Key", "name of a header"),
    ],
)
def test_mistakes_in_how_a_store_is_asked(options: str, field: str, remedy: str) -> None:
    with pytest.raises(FieldError) as caught:
        parse_configuration(prometheus(options))
    assert caught.value.field == f"sources.a.prometheus.{field}"
    assert remedy in caught.value.remedy


@pytest.mark.parametrize(
    "options",
    [
        "bearerTokenFile: /t, basicAuth: {username: me, passwordFile: /p}",
        "bearerTokenFile: /t, headers: {authorization: x}",
        "headers: {X-Key: a}, headerFiles: {x-key: /k}",
    ],
)
def test_of_two_credentials_for_one_header_none_silently_wins(options: str) -> None:
    with pytest.raises(FieldError, match="give it once"):
        parse_configuration(prometheus(options))


def test_every_option_is_described_once() -> None:
    for options in (CONFIGURATION_OPTIONS, PROMETHEUS_OPTIONS):
        assert all(kind and meaning.endswith(".") for kind, meaning in options.values())


def test_a_fallback_is_a_direct_source_of_the_same_configuration() -> None:
    text = "sources: {a: {prometheus: {url: 'http://x', fallback: b}}, b: {direct: {}}}"
    assert parse_configuration(text).sources["a"].fallback == "b"
    for wrong in ("a", "c"):
        with pytest.raises(FieldError, match="name a direct source; there are: b"):
            parse_configuration(text.replace("fallback: b", f"fallback: {wrong}"))


def test_a_broken_line_is_named_and_not_shown() -> None:
    head = "sources:\n  default:\n    prometheus:\n"
    text = head + '      headers: {Authorization: "Bearer s3cret", X: [}\n'
    with pytest.raises(FieldError, match="line 4, column") as refused:
        parse_configuration(text)
    assert "s3cret" not in str(refused.value)
