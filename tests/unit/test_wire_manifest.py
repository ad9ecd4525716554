"""`evictune wire`: what is added, what is left alone, and what is refused, with the remedy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from evictune.cli import main
from evictune.wiring import Wiring, WiringError, check, dump, wire

IMAGE = "registry.example/evictune-plugin:0.1.0"

MANIFEST = """\
# The chat model.
apiVersion: v1
kind: Service
metadata: {name: chat-8b}   # kept as written
spec: {ports: [{port: 80}]}
---
# Its engines.
apiVersion: apps/v1
kind: Deployment
metadata:
  name: chat-8b
spec:
  replicas: 2
  selector: {matchLabels: {app: chat-8b}}
  template:
    metadata: {labels: {app: chat-8b}}
    spec:
      containers:
      - name: route
        image: example/route:1
        ports: [{name: http, containerPort: 8000}]
      - name: vllm
        image: vllm/vllm-openai:v0.11.0
        args: ["--model=acme/owl-8b", "--port=8200"]
        env:
        - {name: PYTHONPATH, value: /opt/site}
        script: |
          one
          two
"""


def documents(text: str) -> list[Any]:
    return list(yaml.safe_load_all(text))


def pod_of(text: str, index: int = 1) -> dict[str, Any]:
    pod: dict[str, Any] = documents(text)[index]["spec"]["template"]["spec"]
    return pod


def container_of(text: str, name: str = "vllm", index: int = 1) -> dict[str, Any]:
    return next(c for c in pod_of(text, index)["containers"] if c["name"] == name)


def test_the_engine_gets_mount_environment_and_port() -> None:
    wired = wire(MANIFEST, Wiring())
    engine = container_of(wired)
    assert engine["volumeMounts"] == [
        {"name": "evictune-knobs", "mountPath": "/etc/evictune/knobs", "readOnly": True}
    ]
    assert engine["ports"] == [{"name": "evictune", "containerPort": 9410}]
    env = {each["name"]: each for each in engine["env"]}
    assert env["EVICTUNE_KNOBS_DIR"]["value"] == "/etc/evictune/knobs"
    assert env["EVICTUNE_POD_NAME"]["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    assert pod_of(wired)["volumes"] == [
        {
            "name": "evictune-knobs",
            "configMap": {"name": "evictune-knobs-deployment-chat-8b", "optional": True},
        }
    ]
    assert "subPath" not in wired


def test_the_rest_is_left_alone() -> None:
    wired = wire(MANIFEST, Wiring(plugin_image=IMAGE))
    service, _, _ = MANIFEST.partition("---\n")
    assert wired.startswith(service + "---\n# Its engines.\n")
    before, after = documents(MANIFEST)[1], documents(wired)[1]
    assert container_of(wired, "route") == container_of(MANIFEST, "route")
    assert container_of(wired)["args"] == ["--model=acme/owl-8b", "--port=8200"]
    for key in ("containers", "volumes", "initContainers"):
        before["spec"]["template"]["spec"].pop(key, None)
        after["spec"]["template"]["spec"].pop(key)
    assert after == before
    assert "|\n" in wired


@pytest.mark.parametrize("wiring", [Wiring(), Wiring(plugin_image=IMAGE)])
def test_wiring_twice_changes_nothing(wiring: Wiring) -> None:
    once = wire(MANIFEST, wiring)
    assert once != MANIFEST
    assert wire(once, wiring) == once


def test_the_plugin_is_copied_from_its_image() -> None:
    wired = wire(MANIFEST, Wiring(plugin_image=IMAGE))
    (copier,) = pod_of(wired)["initContainers"]
    assert copier["image"] == IMAGE
    assert copier["command"] == ["cp", "-r", "/opt/evictune/plugin/.", "/evictune-plugin/"]
    assert copier["resources"]["requests"] == copier["resources"]["limits"]
    assert {"name": "evictune-plugin", "emptyDir": {}} in pod_of(wired)["volumes"]
    env = {each["name"]: each.get("value") for each in container_of(wired)["env"]}
    assert env["PYTHONPATH"] == "/opt/site:/opt/evictune/plugin"


def security_of_the_copier(pod_security: str) -> dict[str, Any]:
    text = simple(first="vllm/vllm-openai").replace(
        "      containers:", f"      securityContext: {pod_security}\n      containers:"
    )
    (copier,) = pod_of(wire(text, Wiring(plugin_image=IMAGE)), 0)["initContainers"]
    found: dict[str, Any] = copier["securityContext"]
    return found


def test_the_copier_needs_no_right_and_no_user_of_its_own() -> None:
    assert security_of_the_copier("{fsGroup: 1000}") == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    # The kubelet would refuse to start it: the whole pod runs as root.
    assert "runAsNonRoot" not in security_of_the_copier("{runAsUser: 0}")


def test_another_plugin_image_replaces_the_one_before() -> None:
    wired = wire(wire(MANIFEST, Wiring(plugin_image=IMAGE)), Wiring(plugin_image="other:2"))
    assert [each["image"] for each in pod_of(wired)["initContainers"]] == ["other:2"]


def test_memory_adds_a_folder_that_outlives_the_container() -> None:
    wired = wire(MANIFEST, Wiring(memory=True))
    assert {"name": "evictune-state", "emptyDir": {}} in pod_of(wired)["volumes"]
    mount = {"name": "evictune-state", "mountPath": "/var/lib/evictune"}
    assert mount in container_of(wired)["volumeMounts"]
    assert container_of(wired, "route") == container_of(MANIFEST, "route")
    assert wire(wired, Wiring()) == wired, "it stays when it is not asked for again"
    assert "evictune-state" not in wire(MANIFEST, Wiring())


def test_a_stateful_set_has_its_own_config_map() -> None:
    wired = wire(MANIFEST.replace("kind: Deployment", "kind: StatefulSet"), Wiring())
    assert pod_of(wired)["volumes"][0]["configMap"]["name"] == "evictune-knobs-statefulset-chat-8b"


def test_a_workload_without_an_engine_beside_one_with() -> None:
    cache = MANIFEST.partition("---\n")[2].replace("vllm/vllm-openai:v0.11.0", "redis:7")
    both = f"{MANIFEST}---\n{cache}"
    assert wire(both, Wiring()).endswith(cache)


SIMPLE = """\
apiVersion: apps/v1
kind: %(kind)s
metadata: {%(name)s}
spec:
  template:
    spec:
      containers:
      - {name: a, image: %(first)s}
      - {name: b, image: %(second)s}
"""


def simple(**values: str) -> str:
    names = {"kind": "Deployment", "name": "name: x", "first": "redis", "second": "envoy"}
    return SIMPLE % {**names, **values}


@pytest.mark.parametrize(
    ("text", "wiring", "message"),
    [
        (simple(), Wiring(), "no container looks like an engine (a, b): name it with --container"),
        (
            simple(first="vllm/vllm-openai", second="vllm/vllm-openai"),
            Wiring(),
            "more than one container looks like an engine (a, b): choose with --container",
        ),
        (simple(), Wiring(container="c"), "no container 'c'; there are: a, b"),
        (simple(kind="LeaderWorkerSet"), Wiring(), "the manifest holds LeaderWorkerSet"),
        (simple(name="generateName: x-", first="vllm/vllm-openai"), Wiring(), "metadata.name"),
        ("", Wiring(), "the manifest holds nothing"),
        ("kind: Deployment\nmetadata: {name: x}\n", Wiring(), "spec.template.spec is needed"),
        ("kind: Deployment\nmetadata: x\n", Wiring(), "metadata.name is needed"),
        (
            simple().replace("      - {name: a, image: redis}", "      - redis"),
            Wiring(),
            "containers",
        ),
        (simple().replace("{name: a,", "{"), Wiring(), "containers with their names"),
        (
            simple(first="vllm/vllm-openai").replace("{name: a,", "{name: a, env: {A: b},"),
            Wiring(),
            "env must be a list of objects, not {'A': 'b'}",
        ),
        (
            simple(first="vllm/vllm-openai").replace("{name: a,", "{name: a, env: [{value: b}],"),
            Wiring(),
            "Deployment x: container a: env has an item without name: {'value': 'b'}",
        ),
        (
            simple(first="vllm/vllm-openai").replace("{name: a,", "{name: a, env: [{name: []}],"),
            Wiring(),
            "env has an item without name",
        ),
        (
            simple(first="vllm/vllm-openai").replace("{name: a,", "{name: a, ports: [{name: p}],"),
            Wiring(),
            "ports has an item without containerPort",
        ),
        (
            simple(first="vllm/vllm-openai").replace("{name: a,", "{name: a, command: vllm,"),
            Wiring(),
            "command must be a list of strings, not 'vllm'",
        ),
        (
            MANIFEST.replace("kind: Deployment", "kind: Deployment\nkind: Deployment"),
            Wiring(),
            "the key 'kind' is given twice",
        ),
        (
            simple(first="vllm/vllm-openai").replace(
                "      containers:", "      volumes: [{emptyDir: {}}]\n      containers:"
            ),
            Wiring(),
            "Deployment x: volumes has an item without name",
        ),
        (
            simple(first="vllm/vllm-openai").replace(
                "{name: a,", "{name: a, volumeMounts: [{name: v, mountPath: /etc/evictune/knobs/}],"
            ),
            Wiring(),
            "volume 'v' is mounted at /etc/evictune/knobs/, where evictune-knobs belongs",
        ),
        (
            simple(first="vllm/vllm-openai").replace(
                "{name: a,", "{name: a, ports: [{name: evictune, containerPort: 80}],"
            ),
            Wiring(),
            "port 80 is called 'evictune'",
        ),
        ("[" * 5000, Wiring(), "nested without end"),
        ("a: &a [*a]\n", Wiring(), "nested without end"),
        ("a: 1\n---\nb: [1\nc: 2\n", Wiring(), "line 4, column 2"),
        ("{{ if .Values.x }}\na: b\n", Wiring(), "not YAML: line 2"),
        (
            MANIFEST.replace("value: /opt/site", "valueFrom: {configMapKeyRef: {name: x, key: y}}"),
            Wiring(plugin_image=IMAGE),
            "PYTHONPATH comes from a reference",
        ),
    ],
)
def test_what_cannot_be_wired_is_refused_with_the_remedy(
    text: str, wiring: Wiring, message: str
) -> None:
    with pytest.raises(WiringError) as caught:
        wire(text, wiring)
    assert message in str(caught.value)


def test_content_behind_the_separator_is_written_once() -> None:
    document = f"--- {json.dumps(yaml.safe_load(simple(first='vllm/vllm-openai')))}\n"
    (wired,) = yaml.safe_load_all(wire(f"--- # kept\n# and this\n{document[4:]}", Wiring()))
    assert wired == yaml.safe_load(wire(document, Wiring()))
    assert "evictune-knobs" in str(wired)
    assert wire(f"--- # kept\n{document[4:]}", Wiring()).startswith("--- # kept\n")


def test_a_merged_key_may_be_given_too() -> None:
    text = simple(first="vllm/vllm-openai")
    text = text.replace("{name: a,", "&a {<<: {name: c}, name: a,").replace(
        "{name: b,", "{<<: *a, name: b,"
    )
    assert "evictune-knobs" in wire(text, Wiring(container="a"))


def test_the_container_may_be_named() -> None:
    wired = wire(simple(), Wiring(container="b"))
    assert container_of(wired, "b", 0)["ports"] == [{"name": "evictune", "containerPort": 9410}]
    assert "ports" not in container_of(wired, "a", 0)


def test_what_looks_like_a_date_or_an_hour_stays_text() -> None:
    notes = "{since: 2026-13-45, at: 2026-11-29T12:00:00Z, ports: 22:22, count: 7, share: 0.5}"
    text = simple(first="vllm/vllm-openai").replace("name: x", f"name: x, annotations: {notes}")
    kept = yaml.load(wire(text, Wiring()), yaml.BaseLoader)["metadata"]["annotations"]
    assert kept == yaml.load(notes, yaml.BaseLoader)
    (written,) = documents(wire(text, Wiring()))
    assert written["metadata"]["annotations"]["ports"] == "22:22"
    assert written["metadata"]["annotations"]["count"] == 7


def test_a_list_that_two_containers_share_is_changed_for_one() -> None:
    text = simple(first="vllm/vllm-openai").replace("{name: a,", "{name: a, env: &e [{name: A}],")
    wired = wire(text.replace("{name: b,", "{name: b, env: *e,"), Wiring())
    assert container_of(wired, "b", 0)["env"] == [{"name": "A"}]
    assert len(container_of(wired, "a", 0)["env"]) == 3


def test_a_port_of_that_number_keeps_its_name() -> None:
    port = "{name: a, ports: [{name: metrics, containerPort: 9410}],"
    wired = wire(simple(first="vllm/vllm-openai").replace("{name: a,", port), Wiring())
    assert container_of(wired, "a", 0)["ports"] == [{"name": "metrics", "containerPort": 9410}]


def test_check_names_all_that_is_missing() -> None:
    lacking = check(MANIFEST, Wiring(IMAGE))
    assert lacking == {
        "Deployment chat-8b": [
            "containers[vllm].env[PYTHONPATH] differs",
            "containers[vllm].env[EVICTUNE_KNOBS_DIR] is missing",
            "containers[vllm].env[EVICTUNE_POD_NAME] is missing",
            "containers[vllm].volumeMounts[/etc/evictune/knobs] is missing",
            "containers[vllm].volumeMounts[/opt/evictune/plugin] is missing",
            "containers[vllm].ports[9410] is missing",
            "volumes[evictune-knobs] is missing",
            "volumes[evictune-plugin] is missing",
            "initContainers[evictune-plugin] is missing",
        ]
    }
    assert check(wire(MANIFEST, Wiring(IMAGE)), Wiring(IMAGE)) == {"Deployment chat-8b": []}


def test_check_names_the_folder_that_memory_needs() -> None:
    wired = wire(MANIFEST, Wiring())
    assert check(wired, Wiring(memory=True)) == {
        "Deployment chat-8b": [
            "containers[vllm].volumeMounts[/var/lib/evictune] is missing",
            "volumes[evictune-state] is missing",
        ]
    }
    both = wire(wired, Wiring(memory=True))
    assert check(both, Wiring(memory=True)) == {"Deployment chat-8b": []}
    own = both.replace("emptyDir: {}", "emptyDir: {sizeLimit: 1Mi}")
    assert own != both
    assert check(own, Wiring(memory=True)) == {"Deployment chat-8b": []}


def running() -> Any:
    """The wired Deployment as the API server would show it, with its defaults."""
    body = documents(wire(MANIFEST, Wiring(IMAGE)))[1]
    pod = body["spec"]["template"]["spec"]
    for volume in pod["volumes"]:
        if "configMap" in volume:
            volume["configMap"]["defaultMode"] = 420
    for container in (*pod["containers"], *pod["initContainers"]):
        container["terminationMessagePath"] = "/dev/termination-log"
        for variable in container.get("env", []):
            if "valueFrom" in variable:
                variable["valueFrom"]["fieldRef"]["apiVersion"] = "v1"
        for port in container.get("ports", []):
            port["protocol"] = "TCP"
    return body


def test_what_the_api_server_adds_is_no_difference() -> None:
    text = yaml.safe_dump(running())
    assert check(text, Wiring(IMAGE)) == {"Deployment chat-8b": []}
    assert wire(text, Wiring(IMAGE)) == text


def test_check_names_what_was_changed() -> None:
    body = running()
    pod = body["spec"]["template"]["spec"]
    (knobs,) = [each for each in pod["volumes"] if each["name"] == "evictune-knobs"]
    knobs["configMap"]["name"] = "evictune-knobs-deployment-other"
    lacking = check(yaml.safe_dump(body), Wiring(IMAGE))
    assert lacking == {"Deployment chat-8b": ["volumes[evictune-knobs] differs"]}


@pytest.mark.parametrize(("wired", "code"), [(False, 1), (True, 0)])
def test_check_of_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], wired: bool, code: int
) -> None:
    file = tmp_path / "chat.yaml"
    file.write_text(wire(MANIFEST, Wiring()) if wired else MANIFEST)
    assert main(["wire", "--check", str(file)]) == code
    told = capsys.readouterr()
    assert told.out.startswith(f"Deployment chat-8b: {'wired' if wired else 'not wired'}\n")
    assert ("without --check" in told.err) is not wired


@pytest.mark.parametrize("text", ["1e3", "1234e56", "08", "0o17", "0x1F", "y", "N", "1_000", "12"])
def test_a_text_that_looks_like_a_number_or_a_truth_value_stays_a_text(text: str) -> None:
    """kubectl's YAML takes more for numbers than Python's: a label of a commit's hash was one."""
    assert dump({"value": text}) in (f"value: '{text}'\n", f'value: "{text}"\n')


@pytest.mark.parametrize("text", ["10Gi", "0.1.0-rc1", "yes-man", "vllm", "a08", "100m"])
def test_other_texts_are_written_plainly(text: str) -> None:
    assert dump({"value": text}) == f"value: {text}\n"


def test_workloads_of_one_name_in_two_namespaces_are_told_apart() -> None:
    def named(namespace: str, *, wired: bool) -> str:
        metadata = {"name": "chat-8b", "namespace": namespace}
        container = {"name": "vllm", "command": ["vllm", "serve", "m"]}
        spec = {"template": {"spec": {"containers": [container]}}}
        text = yaml.safe_dump({"kind": "Deployment", "metadata": metadata, "spec": spec})
        return wire(text, Wiring(IMAGE)) if wired else text

    text = named("prod", wired=False) + "---\n" + named("staging", wired=True)
    lacking = check(text, Wiring(IMAGE))
    assert lacking["Deployment prod/chat-8b"]
    assert lacking["Deployment staging/chat-8b"] == []
