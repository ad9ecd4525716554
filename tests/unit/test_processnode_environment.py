"""A container's environment, $(VAR) expansion, and the mapping of mount paths."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from localcluster.processnode.environment import (
    EnvironmentResolver,
    MountMap,
    base_environment,
    expand,
    pod_field,
)
from localcluster.processnode.errors import ContainerConfigError

POD: dict[str, Any] = {
    "metadata": {
        "name": "web-0",
        "namespace": "shop",
        "uid": "1-2",
        "labels": {"app": "web", "tier": 'a"b'},
    },
    "spec": {"nodeName": "n"},
    "status": {"podIP": "127.40.0.1", "podIPs": [{"ip": "127.40.0.1"}]},
}


class Objects:
    """ConfigMaps and Secrets of a namespace, in memory."""

    def __init__(self, maps: dict[str, Any] | None = None, secrets: Any = None) -> None:
        self._maps, self._secrets = maps or {}, secrets or {}

    def config_map(self, namespace: str, name: str) -> Any:
        assert namespace == "shop"
        return {"data": self._maps[name]} if name in self._maps else None

    def secret(self, namespace: str, name: str) -> Any:
        data = self._secrets.get(name)
        if data is None:
            return None
        return {"data": {k: base64.b64encode(v.encode()).decode() for k, v in data.items()}}


def resolve(container: dict[str, Any], objects: Objects | None = None) -> dict[str, str]:
    return EnvironmentResolver(POD, objects or Objects()).resolve(container)  # type: ignore[arg-type]


# The cases of Kubernetes' own expansion, third_party/forked/golang/expansion/expand_test.go.
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$(VAR_A)", "A"),
        ("___$(VAR_B)___", "___B___"),
        ("$(VAR_A)$(VAR_A)-$(VAR_B)", "AA-B"),
        ("$$(VAR_A)", "$(VAR_A)"),
        ("$$$(VAR_A)", "$A"),
        ("$$$$(VAR_A)", "$$(VAR_A)"),
        ("$(MISSING)", "$(MISSING)"),
        ("$(VAR_A", "$(VAR_A"),
        ("f0 $(", "f0 $("),
        ("VAR_A)", "VAR_A)"),
        ("$VAR_A", "$VAR_A"),
        ("${VAR_A}", "${VAR_A}"),
        ("costs 5$", "costs 5$"),
        ("$()", "$()"),
        ("$(VAR_EMPTY)", ""),
        ("$(VAR_REF)", "$(VAR_A)"),
    ],
)
def test_expansion(text: str, expected: str) -> None:
    variables = {"VAR_A": "A", "VAR_B": "B", "VAR_EMPTY": "", "VAR_REF": "$(VAR_A)"}
    assert expand(text, variables) == expected


def test_variables_see_those_before_them_and_env_wins_over_env_from() -> None:
    container = {
        "envFrom": [{"prefix": "P_", "configMapRef": {"name": "m"}}],
        "env": [
            {"name": "P_two", "value": "own"},
            {"name": "ALL", "value": "$(P_one)+$(P_two)+$(LATER)"},
            {"name": "LATER", "value": "x"},
            {"name": "EMPTY"},
        ],
    }
    objects = Objects({"m": {"one": "1", "two": "2"}})
    assert resolve(container, objects) == {
        "P_one": "1",
        "P_two": "own",
        "ALL": "1+own+$(LATER)",
        "LATER": "x",
        "EMPTY": "",
    }


def test_values_from_objects_are_taken_as_they_are() -> None:
    container = {
        "env": [
            {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}},
            {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
            {
                "name": "C",
                "valueFrom": {"secretKeyRef": {"name": "none", "key": "k", "optional": True}},
            },
        ]
    }
    objects = Objects({"m": {"k": "$(B)"}}, {"s": {"k": "hidden"}})
    assert resolve(container, objects) == {"A": "$(B)", "B": "hidden"}


@pytest.mark.parametrize(
    ("container", "message"),
    [
        ({"envFrom": [{"secretRef": {"name": "s"}}]}, 'secret "s" not found'),
        (
            {"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "no"}}}]},
            "couldn't find key no in configmap shop/m",
        ),
    ],
)
def test_what_is_missing_is_named(container: dict[str, Any], message: str) -> None:
    with pytest.raises(ContainerConfigError, match=message):
        resolve(container, Objects({"m": {}}))


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("metadata.name", "web-0"),
        ("metadata.labels['app']", "web"),
        ("metadata.labels['none']", ""),
        ("metadata.labels", 'app="web"\ntier="a\\"b"'),
        ("metadata.annotations", ""),
        ("spec.nodeName", "n"),
        ("status.podIP", "127.40.0.1"),
        ("status.podIPs", "127.40.0.1"),
    ],
)
def test_pod_fields(path: str, expected: str) -> None:
    assert pod_field(POD, path) == expected


def test_a_container_inherits_little_and_learns_where_the_api_server_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of the node")
    environment = base_environment("https://127.0.0.1:6443", "web-0")
    assert "AWS_SECRET_ACCESS_KEY" not in environment
    assert environment["HOSTNAME"] == "web-0"
    assert environment["KUBERNETES_SERVICE_PORT"] == "6443"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/etc/app", "/real/app"),
        ("/etc/app/", "/real/app/"),
        ("/etc/app/a.json", "/real/app/a.json"),
        ("--config=/etc/app/a.json", "--config=/real/app/a.json"),
        ("cat '/etc/app/a' /etc/app/b", "cat '/real/app/a' /real/app/b"),
        ("/x:/etc/app:/y", "/x:/real/app:/y"),
        ("/etc/app/deep/z", "/real/deep/z"),
        ("/etc/apple", "/etc/apple"),
        ("/etc/app.d/x", "/etc/app.d/x"),
        ("/etc/app-2", "/etc/app-2"),
        ("/data/etc/app", "/data/etc/app"),
        ("http://host/etc/app", "http://host/etc/app"),
        ("nothing here", "nothing here"),
    ],
)
def test_mount_paths_are_rewritten_where_they_are_paths(text: str, expected: str) -> None:
    mounts = MountMap({"/etc/app": "/real/app", "/etc/app/deep/": "/real/deep"})
    assert mounts.rewrite(text) == expected


def test_without_mounts_nothing_is_rewritten() -> None:
    assert MountMap({}).rewrite("/etc/app") == "/etc/app"


def test_what_was_put_in_is_not_rewritten_again() -> None:
    mounts = MountMap({"/a": "/b/c", "/b": "/d"})
    assert mounts.rewrite("/a /b") == "/b/c /d"
